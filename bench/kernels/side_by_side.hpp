#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>

namespace sluice::bench {

/// A kernel and a loop that does nothing but move the same bytes. Each side is called once a thread and pass,
/// with the thread's index; a pass moves `bytes` and computes `elements` over all threads.
struct Contest {
  std::function<void(std::size_t thread)> kernel;
  std::function<void(std::size_t thread)> same_bytes;
  std::size_t threads;
  double elements;
  double bytes;
};

/// Times kernel, loop, kernel, loop … and reports medians:
///   of_peak       the loop's time over the kernel's in the pass beside it (1 = as fast as memory), with min
///   and max ns_per_param  the kernel's time a pass over its elements GB_per_s      bytes moved, by the
///   kernel and by the loop (peak_GB_per_s) cpu_scaling   with threads: how much an FMA loop gains from them,
///   before and after (2 CPUs may share one core)
void run_side_by_side(benchmark::State& state, const Contest& contest);

}  // namespace sluice::bench
