#include <algorithm>
#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "tools/claimed_store.hpp"
#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/optimizer_options.hpp"
#include "tools/options.hpp"
#include "tools/sizes.hpp"
#include "tools/train_progress.hpp"
#include "tools/train_report.hpp"
#include "trainer/trainer.hpp"

namespace sluice::tools {
namespace {

using trainer::TrainOptions;
using trainer::TrainReport;

struct TrainArguments {
  TrainOptions train;
  std::string host_memory;
  std::string device_memory;
  std::string backend = "auto";
  OptimizerArguments optimizer;
  std::string decline = "cosine";
  std::string loss_scale;
  std::string undo = "on";
  bool resume = false;
};

constexpr std::string_view kLeast = "least";
constexpr std::string_view kQuarter = "0.25x";
constexpr std::string_view kDynamic = "dynamic";
constexpr std::string_view kNone = "none";

// A refusal with what to do about it, where that is known: a store with commits can be gone on from, unless it is
// something else in the directories that is in the way.
Status advise(const Status& refused, const TrainOptions& train) {
  if (refused.code() != Code::kAlreadyExists || train.commit_every == 0) return refused;
  std::vector<std::string> directories = train.directories;
  directories.insert(directories.end(), train.recover_directories.begin(), train.recover_directories.end());
  if (!ClaimedStore::claim(directories, std::nullopt).ok()) return refused;
  return {refused.code(), refused.message() + "; --resume goes on from it", refused.native()};
}

std::uint64_t model_state_bytes(const trainer::Shape& shape, const StateRule& rule) {
  std::uint64_t bytes = 0;
  for (std::size_t part = 0; part < trainer::part_count(shape); ++part) {
    for (const trainer::TensorSpec& tensor : trainer::tensors_of(shape, part))
      if (tensor.role != trainer::Role::kHead) bytes += state_bytes(rule, tensor.elements());
  }
  return bytes;
}

// As TrainOptions has it; 0 for what is none.
std::optional<double> parse_loss_scale(const std::string& word) {
  if (word == kDynamic) return std::nullopt;
  if (word == kNone) return 1;
  double scale = 0;
  return CLI::detail::lexical_cast(word, scale) && trainer::is_loss_scale(scale) ? scale : 0;
}

std::string check_loss_scale(const std::string& word) {
  if (parse_loss_scale(word) != 0) return {};
  return fmt::format("'{}' is not a loss scale; accepted: dynamic, none, a number of {}", word,
                     trainer::kLossScales);
}

Result<nlohmann::ordered_json> run(TrainArguments& arguments) {
  TrainOptions& train = arguments.train;
  SLUICE_ASSIGN_OR_RETURN(const StateRule rule,
                          read_optimizer(arguments.optimizer, TrainOptions{}.optimizer));
  train.policy = rule.policy;
  train.optimizer = rule.optimizer;
  train.decline = *std::ranges::find(trainer::kDeclines, arguments.decline, trainer::decline_name);
  const bool may_overflow = rule.policy == Policy::kFp16Master;
  if (arguments.loss_scale.empty()) arguments.loss_scale = may_overflow ? kDynamic : kNone;
  train.loss_scale = parse_loss_scale(arguments.loss_scale);
  train.undo = arguments.undo == "off" ? Undo::kOff : Undo::kOn;
  train.backend = parse_io_backend(arguments.backend);
  std::string host_memory = arguments.host_memory;
  if (host_memory.empty()) host_memory = train.directories.empty() ? "unlimited" : kQuarter;
  const auto budget = [&](const std::string& text) {
    return parse_budget(text, model_state_bytes(train.shape, rule));
  };
  if (host_memory != kLeast) train.host_memory_bytes = budget(host_memory).value();
  if (!arguments.device_memory.empty())
    train.device_memory_bytes = parse_size(arguments.device_memory).value();

  train.start = arguments.resume || train.resume_from > 0 ? trainer::Start::kResume : trainer::Start::kFresh;

  const Interrupt interrupt;
  TrainProgress progress(train.steps, train.sequences * train.shape.context * train.micro_batches);
  const trainer::TrainEvents events{.on_start =
                                        [&](const trainer::StartReport& start) {
                                          std::cerr << start_text(train, start);
                                          progress.start(start.steps_done);
                                        },
                                    .after_step =
                                        [&](const trainer::StepReport& step) {
                                          progress.report(step);
                                          return Interrupt::check();
                                        }};
  const Result<TrainReport> report = trainer::train(train, events);
  if (!report.ok()) return advise(report.status(), train);
  std::cerr << report_text(train, *report);
  return to_json(train, *report);
}

void add_commit_options(CLI::App& command, TrainArguments& arguments) {
  TrainOptions& train = arguments.train;
  CLI::Option* every = command.add_option(
      "--commit-every", train.commit_every,
      "Steps between two commits, which go on in the background; another comes at the end. "
      "Without it nothing is kept");
  every->check(CLI::PositiveNumber)->needs(command.get_option("--dir"));
  command.add_option("--keep-commits", train.keep_commits, "Newest commits that stay usable")
      ->check(CLI::Range(1U, kKeepCommitsMax))
      ->needs(every)
      ->capture_default_str();
  command
      .add_flag("--resume", arguments.resume, "Go on from the newest commit, or start where there is none")
      ->needs(every);
  command
      .add_option("--resume-from", train.resume_from,
                  "Go on from the commit of this number, as sluice inspect shows it; newer ones are dropped")
      ->check(CLI::PositiveNumber)
      ->needs(every);
  command
      .add_option("--recover-dir", train.recover_directories,
                  "Where a drive of the store is that is not among --dir any more; repeat it")
      ->check(CLI::ExistingDirectory)
      ->needs(every);
}

void add_model_options(CLI::App& command, TrainOptions& train) {
  command.add_option("--layers", train.shape.layers, "Transformer layers")->capture_default_str();
  command.add_option("--width", train.shape.width, "Of the residual stream")->capture_default_str();
  command.add_option("--heads", train.shape.heads, "Attention heads")->capture_default_str();
  command.add_option("--context", train.shape.context, "Bytes that a prediction looks at")
      ->capture_default_str();
  command.add_option("--batch", train.sequences, "Sequences a micro-batch")->capture_default_str();
  command.add_option("--micro-batches", train.micro_batches, "Forward and backward passes a step")
      ->capture_default_str();
  command.add_option("--steps", train.steps, "Steps to train")->capture_default_str();
  command.add_option("--seed", train.seed, "Of first weights, batches and the sample")->capture_default_str();
  command.add_option("--sample", train.sample_bytes, "Bytes of text to generate at the end")
      ->capture_default_str();
  command
      .add_option("--validate", train.validate_bytes, "Bytes of held-out text to measure at the end, at most")
      ->capture_default_str();
}

void add_learning_options(CLI::App& command, TrainArguments& arguments) {
  TrainOptions& train = arguments.train;
  add_optimizer_options(command, arguments.optimizer, train.optimizer);
  command.add_option("--warmup", train.warmup_steps, "Steps in which the learning rate rises to --lr")
      ->capture_default_str();
  std::vector<std::string> declines;
  for (const trainer::Decline decline : trainer::kDeclines)
    declines.emplace_back(trainer::decline_name(decline));
  command.add_option("--schedule", arguments.decline, "How the learning rate goes on after that")
      ->check(CLI::IsMember(declines))
      ->capture_default_str();
  command
      .add_option("--min-lr", train.min_lr,
                  "Where a cosine or a line ends, as a part of --lr; a constant rate stays at that")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option("--max-norm", train.max_norm,
                  "What gradients are clipped to, by their norm; inf: nothing is")
      ->capture_default_str();
  command
      .add_option("--loss-scale", arguments.loss_scale,
                  "What the loss is multiplied by before its gradients are computed. Default: dynamic with "
                  "fp16_master, else none")
      ->check(CLI::Validator(check_loss_scale, "dynamic|none|NUMBER"));
}

void add_engine_options(CLI::App& command, TrainArguments& arguments) {
  TrainOptions& train = arguments.train;
  add_directories(command, train.directories)
      ->description(
          "A directory on a drive; repeat it, one a drive; none: all "
          "state stays in host memory");
  const auto check_host = [](const std::string& text) {
    if (text == kLeast || check_budget(text).empty()) return std::string();
    return fmt::format(
        "'{}' is not a budget; accepted: a size such as 512MiB, a part of the state such as 0.25x, "
        "unlimited, least",
        text);
  };
  command
      .add_option("--host-memory", arguments.host_memory,
                  "Budget of host memory for the state: a size, a part of the state such as 0.25x, "
                  "unlimited, or least "
                  "(the smallest that the engine accepts). Default: 0.25x, unlimited without --dir")
      ->check(CLI::Validator(check_host, "SIZE|PARTx|unlimited|least"));
  add_size(command, "--device-memory", arguments.device_memory,
           "Budget of fetched weights, or unlimited. Default: four layers");
  command.add_option("--threads", train.threads, "Of the optimizer; 0: all CPUs")->capture_default_str();
  command.add_option("--gemm-threads", train.gemm_threads, "Of the model; 0: all CPUs")
      ->capture_default_str();
  command
      .add_option("--chunk-elements", train.chunk_elements,
                  "The unit of transfer and update, a multiple of 16384")
      ->capture_default_str();
  add_backend(command, arguments.backend);
  add_overlap(command, train.overlap);
  command.add_option("--undo", arguments.undo, "Whether a failed step leaves the state before it")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

}  // namespace

void add_train_command(CLI::App& app, Command& chosen) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a byte-level transformer on a text, out of core");
  command->add_option("--text", arguments->train.text_path, "The file to learn; its last tenth is held out")
      ->required()
      ->check(CLI::ExistingFile);
  add_engine_options(*command, *arguments);
  add_commit_options(*command, *arguments);
  add_model_options(*command, arguments->train);
  add_learning_options(*command, *arguments);
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace sluice::tools
