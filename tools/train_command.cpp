#include <algorithm>
#include <iostream>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/options.hpp"
#include "tools/process_memory.hpp"
#include "tools/sizes.hpp"
#include "tools/table.hpp"
#include "tools/train_progress.hpp"
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
  std::string policy = "bf16_split";
  std::string undo = "on";
};

constexpr std::string_view kLeast = "least";
constexpr std::string_view kQuarter = "0.25x";

// What the process holds beyond the budgets and the trainer's own.
struct MemoryUse {
  std::uint64_t peak_rss_bytes, hugetlb_bytes, reserved_bytes, trainer_bytes;
  std::int64_t beyond_bytes() const {
    return static_cast<std::int64_t>(peak_rss_bytes + hugetlb_bytes) -
           static_cast<std::int64_t>(reserved_bytes + trainer_bytes);
  }
};

MemoryUse memory_use(const TrainReport& report) {
  const Stats& stats = report.stats;
  return {read_process_memory().peak_rss_bytes, stats.hugetlb_bytes,
          stats.host_reserved_bytes + stats.device_reserved_bytes, report.trainer_bytes};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Seconds that the trainer waited in forward and backward.
double stall_s(const Stats& stats) { return stats.fetch_wait_seconds + stats.gradient_wait_seconds; }

std::string movement_text(const TrainReport& report) {
  const Stats& stats = report.stats;
  Table table({"bytes moved while training", "all", "a step"});
  const auto row = [&](const char* what, std::uint64_t bytes) {
    table.add({what, size_text(bytes), size_text(bytes / report.losses.size())});
  };
  row("weights read from drives", stats.weight_bytes_read);
  row("records read for updates", stats.record_bytes_read);
  row("records written by updates", stats.record_bytes_written);
  row("gradients spilled to drives", stats.gradient_bytes_written);
  row("spilled gradients read back", stats.gradient_bytes_read);
  row("weights copied to the device", stats.device_bytes_in);
  return table.text();
}

std::string time_text(const TrainReport& report) {
  const auto steps = static_cast<double>(report.losses.size());
  const Stats& stats = report.stats;
  const double step = std::accumulate(report.step_seconds.begin(), report.step_seconds.end(), 0.0) / steps;
  const double stalled = stall_s(stats) / steps, updating = stats.step_seconds / steps;
  const double computing = step - stalled - updating;
  Table table({"seconds of a step, in the mean", "", ""});
  const auto row = [&](const char* what, double seconds) {
    table.add({what, fmt::format("{:.3f} s", seconds), fmt::format("{:.0f} %", 100 * seconds / step)});
  };
  row("the model's own arithmetic", computing);
  row("waiting for weights", stats.fetch_wait_seconds / steps);
  row("waiting for room for gradients", stats.gradient_wait_seconds / steps);
  row("updating, with its transfers", updating);
  row("whole", step);
  return table.text() +
         fmt::format(
             "The model's arithmetic alone would take {:.3f} s a step: a step takes {:.2f} times that.\n",
             computing, step / computing);
}

std::string memory_text(const TrainReport& report) {
  const MemoryUse memory = memory_use(report);
  const Stats& stats = report.stats;
  Table table({"memory", ""});
  table.add({"state: weights and optimizer", size_text(stats.state_bytes)});
  table.add({"host budget", size_text(report.host_memory_bytes)});
  table.add({"  smallest that would do", size_text(report.layout.least_host_bytes)});
  table.add({"device budget", size_text(report.device_memory_bytes)});
  table.add({"reserved for both", size_text(memory.reserved_bytes)});
  table.add({"the trainer's own", size_text(memory.trainer_bytes)});
  table.add({"peak of the process", size_text(memory.peak_rss_bytes + memory.hugetlb_bytes)});
  table.add({"  beyond what is above",
             size_text(static_cast<std::uint64_t>(std::max<std::int64_t>(memory.beyond_bytes(), 0)))});
  table.add({"on drives", size_text(stats.nvme_reserved_bytes)});
  return table.text();
}

std::string setting_text(const TrainReport& report) {
  const Stats& stats = report.stats;
  std::string text = fmt::format(
      "{} chunks, {} in host memory whole; backend {}, {}; host memory on {}; {}; {} threads update, {} "
      "compute\n",
      stats.chunks, stats.resident_chunks, stats.backend, stats.direct, stats.host_backing, stats.isa,
      stats.threads, report.gemm_threads);
  for (const std::string& fallback : stats.fallbacks) text += "note: " + fallback + '\n';
  return text;
}

std::string result_text(const TrainReport& report) {
  std::string text;
  if (report.validated_bytes > 0) {
    text += fmt::format(
        "held-out loss {:.4f} nats a byte over {} bytes; single bytes alone would give {:.4f}: {:.4f} "
        "better\n",
        report.validation_loss, report.validated_bytes, report.unigram_entropy,
        report.unigram_entropy - report.validation_loss);
  }
  if (!report.sample.empty()) {
    std::string line = report.prompt + " | " + report.sample;
    std::ranges::replace(line, '\n', ' ');
    text += "sample, going on from held-out text:\n  " + line + '\n';
  }
  return text;
}

std::string report_text(const TrainReport& report) {
  return fmt::format("\n{}\n{}\n{}{}\n{}", movement_text(report), time_text(report), memory_text(report),
                     setting_text(report), result_text(report));
}

nlohmann::ordered_json to_json(const TrainArguments& arguments, const TrainReport& report) {
  const auto hex = [](std::uint64_t hash) { return fmt::format("{:016x}", hash); };
  const auto measured = [&](double value) {
    return report.validated_bytes > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  const TrainOptions& train = arguments.train;
  const Stats& stats = report.stats;
  const MemoryUse memory = memory_use(report);
  nlohmann::ordered_json json{{"losses", report.losses},
                              {"weights_xxh3", hex(report.fingerprint.weights_xxh3)},
                              {"state_xxh3", hex(report.fingerprint.state_xxh3)},
                              {"resumed_from_step", nullptr},
                              {"validation_loss", measured(report.validation_loss)},
                              {"unigram_entropy", measured(report.unigram_entropy)},
                              {"validated_bytes", report.validated_bytes},
                              {"prompt", report.prompt},
                              {"sample", report.sample},
                              {"state_bytes", stats.state_bytes},
                              {"peak_rss_bytes", memory.peak_rss_bytes},
                              {"hugetlb_bytes", memory.hugetlb_bytes},
                              {"reserved_bytes", memory.reserved_bytes},
                              {"trainer_bytes", memory.trainer_bytes},
                              {"step_seconds", median(report.step_seconds)},
                              {"stall_s", stall_s(stats)},
                              {"fetch_wait_s", stats.fetch_wait_seconds},
                              {"gradient_wait_s", stats.gradient_wait_seconds},
                              {"update_s", stats.step_seconds}};
  json.update({{"moved_bytes",
                {{"weights_read", stats.weight_bytes_read},
                 {"records_read", stats.record_bytes_read},
                 {"records_written", stats.record_bytes_written},
                 {"gradients_written", stats.gradient_bytes_written},
                 {"gradients_read", stats.gradient_bytes_read},
                 {"device_in", stats.device_bytes_in}}},
               {"settings",
                {{"layers", train.shape.layers},
                 {"width", train.shape.width},
                 {"heads", train.shape.heads},
                 {"context", train.shape.context},
                 {"batch", train.sequences},
                 {"micro_batches", train.micro_batches},
                 {"steps", train.steps},
                 {"seed", train.seed},
                 {"lr", train.lr},
                 {"warmup", train.warmup_steps},
                 {"policy", arguments.policy},
                 {"undo", arguments.undo},
                 {"chunk_elements", train.chunk_elements},
                 {"host_memory_bytes", report.host_memory_bytes},
                 {"least_host_bytes", report.layout.least_host_bytes},
                 {"device_memory_bytes", report.device_memory_bytes},
                 {"gemm_threads", report.gemm_threads}}},
               {"skipped_steps", stats.skipped_steps},
               {"chunks", stats.chunks},
               {"resident_chunks", stats.resident_chunks},
               {"nvme_bytes", stats.nvme_reserved_bytes},
               {"backend", stats.backend},
               {"direct", stats.direct},
               {"host_backing", stats.host_backing},
               {"device_backing", stats.device_backing},
               {"isa", stats.isa},
               {"threads", stats.threads},
               {"fallbacks", stats.fallbacks}});
  return json;
}

Result<nlohmann::ordered_json> run(TrainArguments& arguments) {
  TrainOptions& train = arguments.train;
  train.policy = arguments.policy == "fp32" ? Policy::kFp32 : Policy::kBf16Split;
  train.undo = arguments.undo == "off" ? Undo::kOff : Undo::kOn;
  train.backend = parse_io_backend(arguments.backend);
  std::string host_memory = arguments.host_memory;
  if (host_memory.empty()) host_memory = train.directories.empty() ? "unlimited" : kQuarter;
  const auto budget = [&](const std::string& text) {
    return parse_budget(text, trainer::state_bytes(train.shape));
  };
  if (host_memory != kLeast) train.host_memory_bytes = budget(host_memory).value();
  if (!arguments.device_memory.empty())
    train.device_memory_bytes = parse_size(arguments.device_memory).value();

  const Interrupt interrupt;
  TrainProgress progress(train.steps, train.sequences * train.shape.context * train.micro_batches);
  const Result<TrainReport> report = trainer::train(train, [&](const trainer::StepReport& step) {
    progress.report(step);
    return Interrupt::check();
  });
  if (!report.ok()) return report.status();
  std::cerr << report_text(*report);
  return to_json(arguments, *report);
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
  command.add_option("--lr", train.lr, "Peak learning rate")->capture_default_str();
  command.add_option("--warmup", train.warmup_steps, "Steps on the way to it")->capture_default_str();
  command.add_option("--sample", train.sample_bytes, "Bytes of text to generate at the end")
      ->capture_default_str();
  command
      .add_option("--validate", train.validate_bytes, "Bytes of held-out text to measure at the end, at most")
      ->capture_default_str();
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
  command.add_option("--policy", arguments.policy, "What is kept for each parameter")
      ->check(CLI::IsMember({"bf16_split", "fp32"}))
      ->capture_default_str();
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
  add_model_options(*command, arguments->train);
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace sluice::tools
