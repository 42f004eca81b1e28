#pragma once

#include <cstddef>

namespace sluice::bench {

/// How many times the arithmetic of one thread `threads` threads do in the same time, with multiply-adds in
/// registers alone: near `threads` when each has a core of its own, near 1 when virtual CPUs share one.
/// Requires: threads >= 1. Cost: the best of three turns of `milliseconds` each, alone and together.
double fma_scaling(std::size_t threads, double milliseconds);

}  // namespace sluice::bench
