#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sluice/engine.hpp"

namespace sluice::tools {

struct ImportOptions {
  /// A safetensors file, an index, or a directory with either; beside it the optimizer's file, if there is one.
  std::string source;
  /// Of what was trained; without it that of the optimizer's file, else bf16_split. kFrozen: of all, no optimizer state.
  std::optional<Policy> policy;
  /// Directories, budgets, chunks, commits. The seed, the first step and the room for fetched weights and user bytes are set here.
  EngineOptions engine;
};

struct ImportReport {
  std::string optimizer;  ///< path of the file that the optimizer's state came from; empty: there was none
  std::uint64_t parameters = 0;
  std::uint64_t aliases = 0;
  std::uint64_t commit = 0;  ///< number
  Stats stats;
};

/// Room for one piece of a moment on its way, beside what the engine and the readers hold.
inline constexpr std::uint64_t kImportBytes = 8 << 20;

/// Makes a store with one commit out of safetensors files, through the public engine alone. With an optimizer's file that
/// sluice export wrote, every plane, count, group, the number of steps and the first rank's user bytes are as they were; without one the
/// weights alone, moments and counts zero. bf16 weights are masters with residual 0.
/// `on_progress` hears the bytes taken from the files so far; an error from it ends the work. After a failure no store is
/// left.
/// Errors: kInvalidArgument for options alone; kAlreadyExists for directories with commits; kDataLoss for files that
/// contradict each other or hold what no engine takes (a name without a character, more than 2^48 elements, a parameter
/// described twice), naming file and tensor; those of Engine::seal().
Result<ImportReport> import_store(const ImportOptions& options,
                                  const std::function<Status(std::uint64_t bytes_read)>& on_progress);

}  // namespace sluice::tools
