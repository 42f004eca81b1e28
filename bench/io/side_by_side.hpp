#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

#include "peers/work.hpp"
#include "sluice/status.hpp"

namespace sluice::bench {

/// One way to move the same bytes.
struct Side {
  std::string name;
  std::function<Result<peers::Moved>()> turn;
};

/// Lets all sides have a turn in each iteration, in an order that turns, and reports medians:
///   ratio        the first side's bytes a second over those of the fastest other, by medians
///   cpu_ratio    the first side's CPU seconds a byte over that other's
///   <name>_GiB_per_s, <name>_ns and <name>_cpu_ns, the latter two a request of `request_bytes`
/// A side that cannot work here is left out; the first one's failure, or that of all others, is the benchmark's.
void run_side_by_side(benchmark::State& state, double request_bytes, std::vector<Side> sides);

}  // namespace sluice::bench
