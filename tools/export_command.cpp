#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "tools/byte_progress.hpp"
#include "tools/claimed_store.hpp"
#include "tools/command.hpp"
#include "tools/export_store.hpp"
#include "tools/interrupt.hpp"
#include "tools/options.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

struct ExportArguments {
  std::vector<std::string> directories;
  std::uint64_t commit = 0;  // 0: the newest
  std::string dtype = "stored";
  bool optimizer = false;
  std::string shard_bytes;
  ExportOptions options;
};

ExportDType parse_dtype(const std::string& word) {
  return word == "bf16" ? ExportDType::kBF16 : word == "fp32" ? ExportDType::kF32 : ExportDType::kStored;
}

Result<Json> run(ExportArguments& arguments) {
  ExportOptions& options = arguments.options;
  options.dtype = parse_dtype(arguments.dtype);
  options.parts = arguments.optimizer ? ExportParts::kAll : ExportParts::kWeights;
  if (!arguments.shard_bytes.empty()) {
    if (names_file(options.target)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("--shard-bytes with --to {}; accepted: a folder, which holds several files",
                                options.target));
    }
    options.file_bytes_max = parse_size(arguments.shard_bytes).value();
  }
  std::optional<std::uint64_t> wanted;
  if (arguments.commit > 0) wanted = arguments.commit;

  const Interrupt interrupt;
  SLUICE_ASSIGN_OR_RETURN(const auto claimed, ClaimedStore::claim(arguments.directories, wanted));
  const store::Choice& choice = claimed->choice();
  SLUICE_ASSIGN_OR_RETURN(store::StoreReader* const reader, claimed->open(choice.commit));
  ByteProgress progress("written", 0);
  SLUICE_ASSIGN_OR_RETURN(const ExportReport report,
                          export_store(*reader, options, [&](std::uint64_t bytes_written) {
                            return progress.report(bytes_written);
                          }));
  const double seconds = progress.seconds();
  progress.end();
  std::cerr << fmt::format("commit {} after step {}: {} tensors, {} in {:.2f} s, into {}{}\n", choice.commit,
                           reader->steps(), report.tensors, size_text(report.bytes), seconds, report.weights,
                           report.optimizer.empty() ? "" : " and " + report.optimizer);
  return Json{{"store", fmt::format("{:016x}", choice.store_id)},
              {"commit", choice.commit},
              {"steps", reader->steps()},
              {"weights", report.weights},
              {"optimizer", report.optimizer.empty() ? Json(nullptr) : Json(report.optimizer)},
              {"tensors", report.tensors},
              {"bytes", report.bytes},
              {"seconds", seconds},
              {"gib_per_s", static_cast<double>(report.bytes) / seconds / (1 << 30)}};
}

}  // namespace

void add_export_command(CLI::App& app, Command& chosen) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command =
      app.add_subcommand("export",
                         "Write a commit's weights into safetensors files. Locks the store: the "
                         "directories must be writable, unless their file system is mounted "
                         "read-only");
  add_directories(*command, arguments->directories)->required();
  command
      ->add_option("--to", arguments->options.target,
                   "A file that ends in .safetensors, or a folder for a model in one file or several")
      ->required();
  command
      ->add_option("--commit", arguments->commit,
                   "Its number, as sluice inspect shows it; the newest without")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--dtype", arguments->dtype,
                   "Of the weights of what was trained; frozen ones stay as stored")
      ->check(CLI::IsMember({"stored", "bf16", "fp32"}))
      ->capture_default_str();
  command->add_flag(
      "--optimizer", arguments->optimizer,
      "Write the optimizer's state and the user bytes too, for sluice import to make a store of again");
  add_size(*command, "--shard-bytes", arguments->shard_bytes, "Of one file in the folder, at most");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace sluice::tools
