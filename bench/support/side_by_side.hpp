#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>
#include <string>

#include "support/workplace.hpp"

namespace sluice::bench {

/// A kernel and a loop that does nothing but move the same bytes. Each side is called once a thread and turn,
/// with the thread's index; a turn goes over `elements` in all.
struct Contest {
  std::function<void(std::size_t thread)> kernel;
  std::function<void(std::size_t thread)> same_bytes;
  std::size_t threads = 1;
  double elements = 0;
  double bytes_per_element = 0;  ///< read and written
};

/// Adds a benchmark of as many iterations as the workplace has turns.
void add_benchmark(const std::string& name, const Workplace& place,
                   std::function<void(benchmark::State&)> run);

/// Times both sides by turns, now the one and now the other first, and reports
///   of_peak          median of the loop's time over that of the kernel beside it: 1 is as fast as memory
///   spread           range of the middle half of those ratios
///   ns_per_param     the kernel's median time over the elements
///   bytes_per_param  moved, by the count of planes
///   GB_per_s         bytes moved by the kernel, and by the loop (peak_GB_per_s)
///   fma_scaling      with threads: the lesser of fma_scaling() before and after
void run_side_by_side(benchmark::State& state, const Workplace& place, const Contest& contest);

}  // namespace sluice::bench
