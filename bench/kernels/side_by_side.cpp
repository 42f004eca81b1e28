#include "side_by_side.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

namespace sluice::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void(std::size_t)>& work, std::size_t threads) {
  if (threads == 1) {
    const Clock::time_point start = Clock::now();
    work(0);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::barrier start_line(static_cast<std::ptrdiff_t>(threads) + 1);
  std::vector<std::thread> workers;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      start_line.arrive_and_wait();
      work(thread);
    });
  }
  start_line.arrive_and_wait();
  const Clock::time_point start = Clock::now();
  for (std::thread& worker : workers) worker.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// What `threads` threads compute against one, in registers only.
double cpu_scaling(std::size_t threads) {
  const auto chain = [](std::size_t) {
    float sums[32] = {};
    for (int i = 0; i < 1'000'000; ++i) {
      for (float& sum : sums) sum = sum * 0.999f + 1.0f;
      benchmark::DoNotOptimize(sums);
    }
  };
  const double one = seconds_of(chain, 1);
  return static_cast<double>(threads) * one / seconds_of(chain, threads);
}

}  // namespace

void run_side_by_side(benchmark::State& state, const Contest& contest) {
  const double scaling_before = contest.threads > 1 ? cpu_scaling(contest.threads) : 1;
  seconds_of(contest.same_bytes, contest.threads);
  seconds_of(contest.kernel, contest.threads);
  std::vector<double> kernel, loop, of_peak;
  for (auto _ : state) {
    kernel.push_back(seconds_of(contest.kernel, contest.threads));
    loop.push_back(seconds_of(contest.same_bytes, contest.threads));
    of_peak.push_back(loop.back() / kernel.back());
    state.SetIterationTime(kernel.back());
  }
  state.counters["of_peak"] = median(of_peak);
  state.counters["of_peak_min"] = *std::min_element(of_peak.begin(), of_peak.end());
  state.counters["of_peak_max"] = *std::max_element(of_peak.begin(), of_peak.end());
  state.counters["ns_per_param"] = median(kernel) / contest.elements * 1e9;
  state.counters["GB_per_s"] = contest.bytes / median(kernel) * 1e-9;
  state.counters["peak_GB_per_s"] = contest.bytes / median(loop) * 1e-9;
  if (contest.threads > 1) {
    state.counters["cpu_scaling"] = (scaling_before + cpu_scaling(contest.threads)) / 2;
  }
}

}  // namespace sluice::bench
