#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "sluice/options.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {

/// Options that several commands have in common, each with its check, so that bad values end in parsing.

inline CLI::Option* add_size(CLI::App& command, const std::string& name, std::string& target,
                             const std::string& description) {
  return command.add_option(name, target, description)->check(CLI::Validator(check_size, "SIZE"));
}

inline CLI::Option* add_directories(CLI::App& command, std::vector<std::string>& target) {
  return command.add_option("--dir", target, "A directory on a drive; repeat it, one a drive")
      ->check(CLI::ExistingDirectory);
}

inline CLI::Option* add_backend(CLI::App& command, std::string& target) {
  return command.add_option("--backend", target, "How to reach the drives")
      ->check(CLI::IsMember({"auto", "uring", "threads"}))
      ->capture_default_str();
}

/// Requires: a word that add_backend() accepts.
inline IoBackend parse_io_backend(const std::string& word) {
  return word == "uring" ? IoBackend::kUring : word == "threads" ? IoBackend::kThreads : IoBackend::kAuto;
}

/// --overlap, whether updates may run during backward.
inline void add_overlap(CLI::App& command, bool& target) {
  command
      .add_option_function<std::string>(
          "--overlap", [&target](const std::string& word) { target = word == "on"; },
          "Whether records are updated while backward goes on")
      ->check(CLI::IsMember({"on", "off"}))
      ->default_str("on");
}

/// --threads, --chunk-elements and --backend.
inline void add_engine_options(CLI::App& command, EngineOptions& engine, std::string& backend) {
  command.add_option("--threads", engine.threads, "Of the optimizer; 0: all CPUs of the affinity mask")
      ->capture_default_str();
  command
      .add_option("--chunk-elements", engine.chunk_elements, "Elements moved at once, a multiple of 16384")
      ->capture_default_str();
  add_backend(command, backend);
}

}  // namespace sluice::tools
