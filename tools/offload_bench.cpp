#include "tools/offload_bench.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "engine/probe.hpp"
#include "sluice/sluice.hpp"
#include "tools/interrupt.hpp"
#include "tools/nvme/throughput.hpp"
#include "tools/own_stores.hpp"

namespace sluice::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A bf16 of 2^-10: small enough to keep weights of any length of run finite.
constexpr std::uint16_t kGradientBits = 0x3A80;

// A multiplication and an addition; backward multiplies for two gradients.
constexpr double kForwardFlops = 2;
constexpr double kBackwardFlops = 4;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status refuse(std::string_view option, std::uint64_t value, std::string_view accepted) {
  return {Code::kInvalidArgument, fmt::format("{} is {}; accepted: {}", option, value, accepted)};
}

Status validate(const OffloadBenchOptions& options) {
  if (options.layers < 1 || options.layers > 100000) return refuse("--layers", options.layers, "1 to 100000");
  if (options.parameters < options.layers)
    return refuse("--params", options.parameters, "at least one a layer");
  if (options.steps < 1 || options.steps > 1000000) return refuse("--steps", options.steps, "1 to 1000000");
  if (options.micro_batches < 1 || options.micro_batches > 65536) {
    return refuse("--micro-batches", options.micro_batches, "1 to 65536");
  }
  if (options.tokens < 1) return refuse("--tokens", options.tokens, "1 or more");
  if (!(options.compute_tflops >= 0))
    return {Code::kInvalidArgument, "--compute-tflops must not be negative"};
  if (options.commit_every > 0 && options.engine.directories.empty())
    return refuse("--commit-every", options.commit_every, "0 without --dir");
  if (options.commit_every > options.steps)
    return refuse("--commit-every", options.commit_every, fmt::format("at most --steps, {}", options.steps));
  return {};
}

class OffloadBench {
 public:
  explicit OffloadBench(const OffloadBenchOptions& options) : options_(options) {}
  ~OffloadBench() { (void)close(); }
  OffloadBench(const OffloadBench&) = delete;
  OffloadBench& operator=(const OffloadBench&) = delete;

  Status open();
  Result<OffloadStep> step();
  Result<OffloadBenchReport> run(const std::function<void(const OffloadStep&)>& on_step);
  /// Ends the engine and removes what it committed. Again: ok, nothing is done.
  Status close();

 private:
  /// Seconds of backward's fetches alone.
  Result<double> replay_fetches();
  Result<OffloadCommit> commit();
  Status measure_commits(std::uint32_t step, OffloadCommits& commits);
  Status forward(Pass& pass);
  Status backward(Pass& pass);
  double compute_s(std::size_t layer, double flops_per_parameter_and_token) const;
  void compute(std::size_t layer, double flops_per_parameter_and_token) const;
  OffloadOverlap overlap_of(const OffloadBenchReport& report, double fetch_s) const;

  const OffloadBenchOptions& options_;
  std::unique_ptr<Engine> engine_;
  std::vector<ParameterId> layers_;
  std::vector<std::uint64_t> elements_;  // of each layer
  std::vector<std::uint16_t> gradient_;  // bf16, as long as the longest layer
  std::vector<std::uint64_t> stores_;    // with commits, which outlive their engine: ids of those to remove
};

Status OffloadBench::open() {
  auto device = make_host_device();
  if (!device.ok()) return device.status();
  EngineOptions engine_options = options_.engine;
  engine_options.keep_commits = options_.commit_every > 0 ? 1 : 0;
  engine_options.existing = OnExisting::kReplaceScratch;
  auto engine =
      Engine::create(std::move(engine_options), std::move(device).value(), make_single_communicator());
  if (!engine.ok()) return engine.status();
  engine_ = std::move(engine).value();
  const auto group = engine_->add_group(
      {.name = "layers",
       .policy = options_.policy,
       .optimizer = options_.optimizer,
       .gradient = options_.micro_batches == 1 ? GradientStorage::kBf16Once : GradientStorage::kFp32,
       .communicator = nullptr});
  if (!group.ok()) return group.status();
  for (std::uint32_t i = 0; i < options_.layers; ++i) {
    const std::uint64_t first = options_.parameters * i / options_.layers;
    const std::uint64_t elements = options_.parameters * (i + 1) / options_.layers - first;
    const auto layer = engine_->add_parameter({.name = fmt::format("layer {}", i),
                                               .shape = {static_cast<std::int64_t>(elements)},
                                               .group = *group,
                                               .initial = Normal{.mean = 0, .stddev = 0.02F}});
    if (!layer.ok()) return layer.status();
    layers_.push_back(*layer);
    elements_.push_back(elements);
  }
  gradient_.assign(*std::max_element(elements_.begin(), elements_.end()), kGradientBits);
  SLUICE_RETURN_IF_ERROR(engine_->seal().status());
  if (options_.commit_every == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(stores_, list_stores(options_.engine.directories));
  return {};
}

Status OffloadBench::close() {
  if (!engine_) return {};
  const Status closed = engine_->close();
  engine_.reset();
  const Status removed = stores_.empty() ? Status() : remove_stores(options_.engine.directories, stores_);
  return closed.ok() ? removed : closed;
}

// Sleeps as long as the arithmetic of a real layer would take; the engine works on meanwhile.
double OffloadBench::compute_s(std::size_t layer, double flops_per_parameter_and_token) const {
  if (options_.compute_tflops == 0) return 0;
  const double flops =
      flops_per_parameter_and_token * static_cast<double>(elements_[layer]) * options_.tokens;
  return flops / (options_.compute_tflops * 1e12);
}

void OffloadBench::compute(std::size_t layer, double flops_per_parameter_and_token) const {
  if (options_.compute_tflops == 0) return;
  const std::chrono::duration<double> seconds(compute_s(layer, flops_per_parameter_and_token));
  std::this_thread::sleep_until(Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds));
}

Status OffloadBench::forward(Pass& pass) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(Interrupt::check());
    const auto lease = pass.fetch({&layers_[i], 1});
    if (!lease.ok()) return lease.status();
    compute(i, kForwardFlops);
  }
  return {};
}

Status OffloadBench::backward(Pass& pass) {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    SLUICE_RETURN_IF_ERROR(Interrupt::check());
    {
      const auto lease = pass.fetch({&layers_[i], 1});
      if (!lease.ok()) return lease.status();
      compute(i, kBackwardFlops);
    }
    SLUICE_RETURN_IF_ERROR(pass.add_gradient(layers_[i], Gradient::bf16(gradient_.data())));
  }
  return {};
}

Result<OffloadStep> OffloadBench::step() {
  const Stats before = engine_->stats();
  OffloadStep step;
  auto pass = engine_->begin_step({.gradient_divisor = static_cast<double>(options_.micro_batches),
                                   .micro_batches = options_.overlap ? options_.micro_batches : 0});
  if (!pass.ok()) return pass.status();
  for (std::uint32_t i = 0; i < options_.micro_batches; ++i) {
    auto start = Clock::now();
    SLUICE_RETURN_IF_ERROR(forward(*pass));
    step.forward_s += seconds_since(start);
    start = Clock::now();
    SLUICE_RETURN_IF_ERROR(backward(*pass));
    step.last_s = seconds_since(start);
    step.backward_s += step.last_s;
  }
  SLUICE_RETURN_IF_ERROR(Interrupt::check());
  const auto start = Clock::now();
  const auto result = pass->step();
  if (!result.ok()) return result.status();
  step.step_s = seconds_since(start);
  step.last_s += step.step_s;
  step.seconds = step.forward_s + step.backward_s + step.step_s;

  const Stats after = engine_->stats();
  const auto read = [](const Stats& s) {
    return s.weight_bytes_read + s.record_bytes_read + s.gradient_bytes_read;
  };
  const auto written = [](const Stats& s) { return s.record_bytes_written + s.gradient_bytes_written; };
  const auto stall = [](const Stats& s) { return s.fetch_wait_seconds + s.gradient_wait_seconds; };
  step.bytes_read = read(after) - read(before);
  step.bytes_written = written(after) - written(before);
  step.stall_s = stall(after) - stall(before);
  return step;
}

Result<double> OffloadBench::replay_fetches() {
  SLUICE_ASSIGN_OR_RETURN(Pass pass, engine_->begin_pass("fetches of forward and backward"));
  for (const ParameterId& layer : layers_) SLUICE_RETURN_IF_ERROR(pass.fetch({&layer, 1}).status());
  const auto start = Clock::now();
  for (std::size_t i = layers_.size(); i-- > 0;)
    SLUICE_RETURN_IF_ERROR(pass.fetch({&layers_[i], 1}).status());
  const double seconds = seconds_since(start);
  SLUICE_RETURN_IF_ERROR(pass.end());
  return seconds;
}

Result<OffloadCommit> OffloadBench::commit() {
  const Stats before = engine_->stats();
  const auto start = Clock::now();
  SLUICE_ASSIGN_OR_RETURN(const CommitTicket ticket, engine_->commit({}, CommitMode::kWait));
  SLUICE_RETURN_IF_ERROR(ticket.wait());
  const double seconds = seconds_since(start);
  const Stats after = engine_->stats();
  return OffloadCommit{seconds, after.commit_state_bytes_written - before.commit_state_bytes_written,
                       after.commit_record_bytes_written - before.commit_record_bytes_written};
}

// Requires: the drives' caches were empty before the steps since the last measurement.
Status OffloadBench::measure_commits(std::uint32_t step, OffloadCommits& commits) {
  if (options_.commit_every == 0 || step % options_.commit_every != 0) return {};
  if (step / options_.commit_every % 2 == 1) {
    SLUICE_ASSIGN_OR_RETURN(commits.commits.emplace_back(), commit());
  } else {
    SLUICE_ASSIGN_OR_RETURN(commits.bare_flushes_s.emplace_back(), engine::bare_flushes(*engine_));
  }
  return {};
}

// Requires: the report's medians and limits.
OffloadOverlap OffloadBench::overlap_of(const OffloadBenchReport& report, double fetch_s) const {
  OffloadOverlap overlap;
  for (std::size_t i = 0; i < layers_.size(); ++i) overlap.backward_s += compute_s(i, kBackwardFlops);
  overlap.fetch_s = fetch_s;
  const double last_layer = static_cast<double>(elements_[0]) / static_cast<double>(options_.parameters);
  overlap.last_layer_s = last_layer * std::max(report.io_limit_s, report.compute_limit_s);
  overlap.limit_s = std::max(overlap.backward_s, overlap.fetch_s + report.io_limit_s) + overlap.last_layer_s;
  overlap.ratio = report.median.last_s / overlap.limit_s;
  return overlap;
}

Result<OffloadBenchReport> OffloadBench::run(const std::function<void(const OffloadStep&)>& on_step) {
  OffloadBenchReport report;
  SLUICE_RETURN_IF_ERROR(step().status());
  SLUICE_RETURN_IF_ERROR(replay_fetches().status());
  std::vector<double> io_limits;
  std::vector<double> compute_limits;
  std::vector<double> fetches;
  for (std::uint32_t i = 0; i < options_.steps; ++i) {
    const auto result = step();
    if (!result.ok()) return result.status();
    report.steps.push_back(*result);
    on_step(*result);
    SLUICE_RETURN_IF_ERROR(measure_commits(i + 1, report.commits));
    const auto io_limit = engine::replay_step_io(*engine_);
    if (!io_limit.ok()) return io_limit.status();
    io_limits.push_back(*io_limit);
    const auto compute_limit = engine::replay_step_compute(*engine_);
    if (!compute_limit.ok()) return compute_limit.status();
    compute_limits.push_back(*compute_limit);
    SLUICE_ASSIGN_OR_RETURN(fetches.emplace_back(), replay_fetches());
    if (options_.commit_every > 0) SLUICE_RETURN_IF_ERROR(engine::bare_flushes(*engine_).status());
  }

  const auto median_of = [&report](auto OffloadStep::*field) {
    std::vector<double> values;
    for (const OffloadStep& one : report.steps) values.push_back(static_cast<double>(one.*field));
    return median(std::move(values));
  };
  report.median = {.seconds = median_of(&OffloadStep::seconds),
                   .forward_s = median_of(&OffloadStep::forward_s),
                   .backward_s = median_of(&OffloadStep::backward_s),
                   .step_s = median_of(&OffloadStep::step_s),
                   .last_s = median_of(&OffloadStep::last_s),
                   .stall_s = median_of(&OffloadStep::stall_s),
                   .bytes_read = static_cast<std::uint64_t>(median_of(&OffloadStep::bytes_read)),
                   .bytes_written = static_cast<std::uint64_t>(median_of(&OffloadStep::bytes_written))};
  report.io_limit_s = median(std::move(io_limits));
  report.compute_limit_s = median(std::move(compute_limits));
  report.efficiency = std::max(report.io_limit_s, report.compute_limit_s) / report.median.step_s;
  report.overlap = overlap_of(report, median(std::move(fetches)));
  std::vector<double> commit_seconds;
  for (const OffloadCommit& one : report.commits.commits) commit_seconds.push_back(one.seconds);
  report.commits.commit_s = median(std::move(commit_seconds));
  report.commits.median_flushes_s = median(report.commits.bare_flushes_s);
  report.commits.beyond_of_step =
      (report.commits.commit_s - report.commits.median_flushes_s) / report.median.seconds;
  report.trainer_bytes = gradient_.size() * sizeof gradient_[0];
  report.stats = engine_->stats();
  SLUICE_RETURN_IF_ERROR(close());
  return report;
}

}  // namespace

Result<OffloadBenchReport> run_offload_bench(const OffloadBenchOptions& options,
                                             const std::function<void(const OffloadStep&)>& on_step) {
  SLUICE_RETURN_IF_ERROR(validate(options));
  const Interrupt interrupt;
  OffloadBench bench(options);
  SLUICE_RETURN_IF_ERROR(bench.open());
  return bench.run(on_step);
}

}  // namespace sluice::tools
