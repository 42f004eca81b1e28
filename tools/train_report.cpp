#include "tools/train_report.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "tools/optimizer_options.hpp"
#include "tools/process_memory.hpp"
#include "tools/sizes.hpp"
#include "tools/stats_report.hpp"
#include "tools/table.hpp"
#include "trainer/optimizer_numbers.hpp"

namespace sluice::tools {
namespace {

using trainer::StartReport;
using trainer::TrainOptions;
using trainer::TrainReport;

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
    table.add({what, size_text(bytes), size_text(bytes / report.step_seconds.size())});
  };
  row("weights read from drives", stats.weight_bytes_read);
  row("records read for updates", stats.record_bytes_read);
  row("records written by updates", stats.record_bytes_written);
  row("gradients spilled to drives", stats.gradient_bytes_written);
  row("spilled gradients read back", stats.gradient_bytes_read);
  row("records written by commits", stats.commit_state_bytes_written);
  row("tables written by commits", stats.commit_record_bytes_written);
  row("weights copied to the device", stats.device_bytes_in);
  return table.text();
}

std::string time_text(const TrainReport& report) {
  const auto steps = static_cast<double>(report.step_seconds.size());
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

std::string scale_text(const TrainReport& report) {
  const std::uint64_t skipped = report.stats.skipped_steps;
  if (skipped == 0 && report.loss_scale == 1) return {};
  return fmt::format("{} steps skipped for gradients that were not finite; loss scale at the end {}\n",
                     skipped, report.loss_scale);
}

std::string setting_text(const TrainOptions& options, const TrainReport& report) {
  return fmt::format("{}, {}, {} schedule, updates during backward {}\n", policy_name(options.policy),
                     optimizer_text(options.optimizer), trainer::decline_name(options.decline),
                     options.overlap ? "on" : "off") +
         scale_text(report) + early_text(report.stats) + use_text(report.stats) +
         fmt::format("{} threads compute\n", report.gemm_threads);
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

std::string commit_text(const TrainReport& report) {
  const Stats& stats = report.stats;
  std::string text;
  if (report.commit) {
    text = fmt::format(
        "{} commits, {:.3f} s from begun to durable, of which the trainer waited {:.3f} s; the last is "
        "number {}\n",
        stats.commits, stats.commit_seconds, stats.commit_wait_seconds, *report.commit);
  }
  return text + "a crash now would lose: " + stats.crash_cost + '\n';
}

}  // namespace

std::string start_text(const TrainOptions& options, const StartReport& start) {
  if (options.start != trainer::Start::kResume) return {};
  if (!start.commit) return "no commit to go on from: starts at the beginning\n";
  std::string text =
      fmt::format("goes on after step {} of {}, from commit {}{}\n", start.steps_done, options.steps,
                  *start.commit, start.rewritten ? ", rewritten into the shape asked for" : "");
  for (const std::string& difference : start.differences) text += "note: " + difference + '\n';
  return text;
}

std::string report_text(const TrainOptions& options, const TrainReport& report) {
  std::string text = "\n";
  if (!report.step_seconds.empty()) text += fmt::format("{}\n{}\n", movement_text(report), time_text(report));
  return text + memory_text(report) + setting_text(options, report) + commit_text(report) + '\n' +
         result_text(report);
}

nlohmann::ordered_json to_json(const TrainOptions& train, const TrainReport& report) {
  using Json = nlohmann::ordered_json;
  const auto hex = [](std::uint64_t hash) { return fmt::format("{:016x}", hash); };
  const auto measured = [&](double value) {
    return report.validated_bytes > 0 ? Json(value) : Json(nullptr);
  };
  const Stats& stats = report.stats;
  const MemoryUse memory = memory_use(report);
  Json json{{"losses", report.losses},
            {"weights_xxh3", hex(report.fingerprint.weights_xxh3)},
            {"state_xxh3", hex(report.fingerprint.state_xxh3)},
            {"user_bytes_xxh3", report.user_bytes_xxh3 ? Json(hex(*report.user_bytes_xxh3)) : Json(nullptr)},
            {"resumed_from_step", report.start.commit ? Json(report.start.steps_done) : Json(nullptr)},
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
            {"step_seconds", report.step_seconds.empty() ? Json(nullptr) : Json(median(report.step_seconds))},
            {"stall_s", stall_s(stats)},
            {"fetch_wait_s", stats.fetch_wait_seconds},
            {"gradient_wait_s", stats.gradient_wait_seconds},
            {"update_s", stats.step_seconds},
            {"commits", stats.commits},
            {"commit_s", stats.commit_seconds},
            {"commit_wait_s", stats.commit_wait_seconds},
            {"steps_since_commit", stats.steps_since_commit},
            {"crash_cost", stats.crash_cost},
            {"differences", report.start.differences}};
  json.update({{"moved_bytes",
                {{"weights_read", stats.weight_bytes_read},
                 {"records_read", stats.record_bytes_read},
                 {"records_written", stats.record_bytes_written},
                 {"gradients_written", stats.gradient_bytes_written},
                 {"gradients_read", stats.gradient_bytes_read},
                 {"commit_state_written", stats.commit_state_bytes_written},
                 {"commit_records_written", stats.commit_record_bytes_written},
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
                 {"policy", policy_name(train.policy)},
                 {"optimizer", optimizer_json(train.optimizer)},
                 {"lr", trainer::learning_rate(train.optimizer)},
                 {"warmup", train.warmup_steps},
                 {"schedule", trainer::decline_name(train.decline)},
                 {"min_lr", train.min_lr},
                 {"max_norm", std::isfinite(train.max_norm) ? Json(train.max_norm) : Json(nullptr)},
                 {"loss_scale", train.loss_scale ? Json(*train.loss_scale) : Json("dynamic")},
                 {"overlap", train.overlap ? "on" : "off"},
                 {"undo", train.undo == Undo::kOn ? "on" : "off"},
                 {"commit_every", train.commit_every},
                 {"keep_commits", train.commit_every > 0 ? train.keep_commits : 0},
                 {"chunk_elements", train.chunk_elements},
                 {"host_memory_bytes", report.host_memory_bytes},
                 {"least_host_bytes", report.layout.least_host_bytes},
                 {"device_memory_bytes", report.device_memory_bytes},
                 {"gemm_threads", report.gemm_threads}}},
               {"skipped_steps", stats.skipped_steps},
               {"loss_scale", report.loss_scale}});
  add_early(json, stats);
  add_use(json, stats);
  return json;
}

}  // namespace sluice::tools
