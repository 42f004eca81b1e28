#include <algorithm>
#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "tools/command.hpp"
#include "tools/offload_bench.hpp"
#include "tools/optimizer_options.hpp"
#include "tools/options.hpp"
#include "tools/process_memory.hpp"
#include "tools/sizes.hpp"
#include "tools/stats_report.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

struct BenchOptions {
  OffloadBenchOptions bench;
  std::string host_memory;
  std::string device_memory;
  OptimizerArguments optimizer;
  std::string backend = "auto";
};

// Below this part of the step neither limit explains it.
constexpr double kExplains = 0.8;

std::string bottleneck(const OffloadBenchReport& report) {
  const OffloadStep& median = report.median;
  const OffloadOverlap& overlap = report.overlap;
  if (report.stats.early_updates > 0 && overlap.ratio * kExplains <= 1) {
    return overlap.backward_s > overlap.fetch_s + report.io_limit_s ? "the simulated arithmetic of backward"
                                                                    : "the drives, in backward and the step";
  }
  if (median.stall_s > median.step_s)
    return "waiting for weights and for room for gradients in forward and backward";
  if (median.step_s > 0 && report.efficiency >= kExplains) {
    return report.io_limit_s > report.compute_limit_s ? "the drives, in the step"
                                                      : "the optimizer's arithmetic, in the step";
  }
  if (median.forward_s + median.backward_s > median.step_s)
    return "the simulated arithmetic of forward and backward";
  return "the step itself: it takes longer than its requests and its arithmetic do alone";
}

std::string report_text(const BenchOptions& options, const OffloadBenchReport& report) {
  const OffloadStep& median = report.median;
  const auto parameters = static_cast<double>(options.bench.parameters);
  const auto seconds = [](double value) { return fmt::format("{:.3f} s", value); };
  const auto per_parameter = [&](std::uint64_t bytes) {
    return fmt::format("{} ({:.1f} a parameter)", size_text(bytes), static_cast<double>(bytes) / parameters);
  };
  Table table({"median of " + std::to_string(report.steps.size()) + " steps", ""});
  table.add({"whole", seconds(median.seconds)});
  table.add({"forward", seconds(median.forward_s)});
  table.add({"backward", seconds(median.backward_s)});
  table.add({"step", seconds(median.step_s)});
  table.add({"stalled in forward and backward", seconds(median.stall_s)});
  table.add({"I/O limit of the step", seconds(report.io_limit_s)});
  table.add({"arithmetic limit of the step", seconds(report.compute_limit_s)});
  table.add({"efficiency of the step", fmt::format("{:.3f}", report.efficiency)});
  table.add({"last backward and step", seconds(median.last_s)});
  table.add({"  their limit where updates overlap", seconds(report.overlap.limit_s)});
  table.add({"  of it", fmt::format("{:.3f}", report.overlap.ratio)});
  table.add({"read", per_parameter(median.bytes_read)});
  table.add({"written", per_parameter(median.bytes_written)});
  table.add({"parameters", fmt::format("{:.1f} million/s", parameters / median.seconds / 1e6)});
  const OffloadCommits& commits = report.commits;
  if (!commits.commits.empty()) table.add({"commit", seconds(commits.commit_s)});
  if (!commits.bare_flushes_s.empty()) {
    table.add({"two bare flushes after the same writes", seconds(commits.median_flushes_s)});
    table.add({"commit beyond them, of a step", fmt::format("{:.2f} %", 100 * commits.beyond_of_step)});
  }
  const Stats& stats = report.stats;
  std::string text = table.text();
  text += fmt::format("bottleneck: {}\n", bottleneck(report));
  text += fmt::format("{}, {}, updates during backward {}\n", policy_name(options.bench.policy),
                      optimizer_text(options.bench.optimizer), options.bench.overlap ? "on" : "off");
  text += early_text(stats);
  if (stats.early_updates > 0)
    text += "the efficiency is that of what was left to the step: --overlap off leaves it all\n";
  text += use_text(stats);
  return text;
}

nlohmann::ordered_json to_json(const OffloadStep& step) {
  return {
      {"seconds", step.seconds},       {"forward_s", step.forward_s},        {"backward_s", step.backward_s},
      {"step_s", step.step_s},         {"backward_and_step_s", step.last_s}, {"stall_s", step.stall_s},
      {"bytes_read", step.bytes_read}, {"bytes_written", step.bytes_written}};
}

// A commit beside the flushes that were measured next.
nlohmann::ordered_json to_json(const OffloadCommits& commits) {
  auto json = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < commits.commits.size(); ++i) {
    const OffloadCommit& commit = commits.commits[i];
    json.push_back({{"commit_s", commit.seconds},
                    {"bare_flushes_s", nullptr},
                    {"state_bytes_written", commit.state_bytes_written},
                    {"record_bytes_written", commit.record_bytes_written}});
    if (i < commits.bare_flushes_s.size()) json.back()["bare_flushes_s"] = commits.bare_flushes_s[i];
  }
  return json;
}

Result<nlohmann::ordered_json> run(BenchOptions& options) {
  OffloadBenchOptions& bench = options.bench;
  SLUICE_ASSIGN_OR_RETURN(const StateRule rule, read_optimizer(options.optimizer, AdamW{}));
  bench.policy = rule.policy;
  bench.optimizer = rule.optimizer;
  bench.engine.host_budget_bytes = parse_size(options.host_memory).value();
  bench.engine.device_budget_bytes = parse_size(options.device_memory).value();
  bench.engine.io.backend = parse_io_backend(options.backend);

  std::uint64_t finished = 0;
  const auto result = run_offload_bench(bench, [&](const OffloadStep& step) {
    std::cerr << fmt::format(
        "step {}/{}: {:.3f} s = forward {:.3f} + backward {:.3f} + step {:.3f}, read {}, wrote {}\n",
        ++finished, bench.steps, step.seconds, step.forward_s, step.backward_s, step.step_s,
        size_text(step.bytes_read), size_text(step.bytes_written));
  });
  if (!result.ok()) return result.status();
  std::cerr << report_text(options, *result);

  auto steps = nlohmann::ordered_json::array();
  for (const OffloadStep& step : result->steps) steps.push_back(to_json(step));
  const ProcessMemory memory = read_process_memory();
  const Stats& stats = result->stats;
  const OffloadCommits& commits = result->commits;
  const auto measured = [](bool is, double value) {
    return is ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json json = {
      {"policy", policy_name(bench.policy)},
      {"optimizer", optimizer_json(bench.optimizer)},
      {"steps", steps},
      {"median", to_json(result->median)},
      {"io_limit_s", result->io_limit_s},
      {"compute_limit_s", result->compute_limit_s},
      {"efficiency", result->efficiency},
      {"overlap", bench.overlap ? "on" : "off"},
      {"overlap_limit_s", result->overlap.limit_s},
      {"overlap_ratio", result->overlap.ratio},
      {"backward_compute_s", result->overlap.backward_s},
      {"backward_fetch_s", result->overlap.fetch_s},
      {"last_layer_step_s", result->overlap.last_layer_s},
      {"commits", to_json(commits)},
      {"commit_s", measured(!commits.commits.empty(), commits.commit_s)},
      {"bare_flushes_s", measured(!commits.bare_flushes_s.empty(), commits.median_flushes_s)},
      {"commit_beyond_flushes_of_step", measured(!commits.bare_flushes_s.empty(), commits.beyond_of_step)},
      {"params_per_s", static_cast<double>(bench.parameters) / result->median.seconds},
      {"peak_rss_bytes", memory.peak_rss_bytes},
      {"hugetlb_bytes", std::max(memory.hugetlb_bytes, stats.hugetlb_bytes)},
      {"reserved_bytes", stats.host_reserved_bytes + stats.device_reserved_bytes},
      {"trainer_bytes", result->trainer_bytes},
      {"state_bytes", stats.state_bytes}};
  add_early(json, stats);
  add_use(json, stats);
  return json;
}

}  // namespace

void add_bench_command(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<BenchOptions>();
  OffloadBenchOptions& bench = options->bench;
  CLI::App* command =
      app.add_subcommand("bench", "Measure forward, backward and step of the engine without a model");
  command->add_option("--params", bench.parameters, "Elements of all layers together")->required();
  add_directories(*command, bench.engine.directories);
  add_size(*command, "--host-memory", options->host_memory, "Budget of pinned host memory, or unlimited")
      ->required();
  add_size(*command, "--device-memory", options->device_memory, "Budget of fetched weights, or unlimited")
      ->required();
  add_optimizer_options(*command, options->optimizer, AdamW{});
  add_overlap(*command, bench.overlap);
  command->add_option("--steps", bench.steps, "Steps to measure")->capture_default_str();
  command
      ->add_option(
          "--commit-every", bench.commit_every,
          "Steps between two measurements, of a commit and of two bare flushes by turns; 0: no commits")
      ->capture_default_str();
  command->add_option("--layers", bench.layers, "Layers of equal size")->capture_default_str();
  command->add_option("--micro-batches", bench.micro_batches, "Forward and backward passes a step")
      ->capture_default_str();
  command->add_option("--tokens", bench.tokens, "Of a micro-batch, for --compute-tflops")
      ->capture_default_str();
  command->add_option("--compute-tflops", bench.compute_tflops, "Speed of the simulated arithmetic; 0: none")
      ->capture_default_str();
  add_engine_options(*command, bench.engine, options->backend);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace sluice::tools
