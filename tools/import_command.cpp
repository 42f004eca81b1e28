#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "tools/byte_progress.hpp"
#include "tools/command.hpp"
#include "tools/import_store.hpp"
#include "tools/interrupt.hpp"
#include "tools/options.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

struct ImportArguments {
  ImportOptions options;
  std::string policy;
  std::string undo = "on";
  std::string host_memory = "512MiB";
  std::string backend = "auto";
};

Result<Json> run(ImportArguments& arguments) {
  ImportOptions& options = arguments.options;
  options.policy = find_policy(arguments.policy);
  options.engine.undo = arguments.undo == "off" ? Undo::kOff : Undo::kOn;
  options.engine.host_budget_bytes = parse_size(arguments.host_memory).value();
  options.engine.io.backend = parse_io_backend(arguments.backend);

  const Interrupt interrupt;
  ByteProgress progress("read", 0);
  SLUICE_ASSIGN_OR_RETURN(const ImportReport report, import_store(options, [&](std::uint64_t bytes_read) {
                            return progress.report(bytes_read);
                          }));
  const double seconds = progress.seconds();
  progress.end();
  const Stats& stats = report.stats;
  std::cerr << fmt::format("{} parameters and {} aliases, {} of state, {} in {:.2f} s: commit {}\n",
                           report.parameters, report.aliases, size_text(stats.state_bytes),
                           report.optimizer.empty() ? "without optimizer state" : "with " + report.optimizer,
                           seconds, report.commit);
  for (const std::string& fallback : stats.fallbacks) std::cerr << "note: " << fallback << '\n';
  return Json{{"commit", report.commit},
              {"parameters", report.parameters},
              {"aliases", report.aliases},
              {"optimizer", report.optimizer.empty() ? Json(nullptr) : Json(report.optimizer)},
              {"state_bytes", stats.state_bytes},
              {"nvme_bytes", stats.nvme_reserved_bytes},
              {"chunks", stats.chunks},
              {"seconds", seconds},
              {"backend", stats.backend},
              {"direct", stats.direct},
              {"fallbacks", stats.fallbacks}};
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy policy : policies()) names.emplace_back(policy_name(policy));
  return names;
}

}  // namespace

void add_import_command(CLI::App& app, Command& chosen) {
  auto arguments = std::make_shared<ImportArguments>();
  ImportOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "import", "Make a store with one commit out of safetensors files, for any engine to go on with");
  command
      ->add_option("--from", options.source,
                   "A .safetensors file, an index, or a folder with either; what sluice export --optimizer "
                   "wrote beside "
                   "it is read too")
      ->required()
      ->check(CLI::ExistingPath);
  add_directories(*command, options.engine.directories)->required();
  command
      ->add_option("--policy", arguments->policy,
                   "What is kept for each element of what was trained; without it as it was, else bf16_split")
      ->check(CLI::IsMember(policy_names()));
  command->add_option("--keep-commits", options.engine.keep_commits, "Newest commits that the store keeps")
      ->check(CLI::Range(1U, kKeepCommitsMax))
      ->capture_default_str();
  command->add_option("--undo", arguments->undo, "Whether a failed step leaves the state before it")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  add_size(*command, "--host-memory", arguments->host_memory, "Budget of pinned host memory, or unlimited")
      ->capture_default_str();
  add_engine_options(*command, options.engine, arguments->backend);
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace sluice::tools
