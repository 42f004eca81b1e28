#include "support/side_by_side.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "support/fma_probe.hpp"
#include "support/timed_threads.hpp"

namespace sluice::bench {
namespace {

// The value that `part` of the values are below. Requires: ascending, not empty; part in [0, 1).
double quantile(const std::vector<double>& values, double part) {
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size()))];
}

}  // namespace

void add_benchmark(const std::string& name, const Workplace& place,
                   std::function<void(benchmark::State&)> run) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(run))
      ->Iterations(place.turns())
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void run_side_by_side(benchmark::State& state, const Workplace& place, const Contest& contest) {
  const auto probe = [&] { return fma_scaling(contest.threads, place.probe_milliseconds()); };
  const double scaling_before = contest.threads > 1 ? probe() : 1;
  std::vector<double> kernel, loop, of_peak;
  const auto time_kernel = [&] { return seconds_of(contest.kernel, contest.threads); };
  const auto time_loop = [&] { return seconds_of(contest.same_bytes, contest.threads); };
  time_loop();  // both warm up
  time_kernel();
  for (auto _ : state) {
    const bool kernel_first = kernel.size() % 2 == 0;
    if (kernel_first) kernel.push_back(time_kernel());
    loop.push_back(time_loop());
    if (!kernel_first) kernel.push_back(time_kernel());
    of_peak.push_back(loop.back() / kernel.back());
    state.SetIterationTime(kernel.back());
  }
  for (std::vector<double>* values : {&kernel, &loop, &of_peak}) std::ranges::sort(*values);
  const double bytes = contest.elements * contest.bytes_per_element;
  state.counters["of_peak"] = quantile(of_peak, 0.5);
  state.counters["spread"] = quantile(of_peak, 0.75) - quantile(of_peak, 0.25);
  state.counters["ns_per_param"] = quantile(kernel, 0.5) / contest.elements * 1e9;
  state.counters["bytes_per_param"] = contest.bytes_per_element;
  state.counters["GB_per_s"] = bytes / quantile(kernel, 0.5) * 1e-9;
  state.counters["peak_GB_per_s"] = bytes / quantile(loop, 0.5) * 1e-9;
  if (contest.threads > 1) state.counters["fma_scaling"] = std::min(scaling_before, probe());
}

}  // namespace sluice::bench
