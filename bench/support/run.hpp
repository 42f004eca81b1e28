#pragma once

#include <initializer_list>

#include "support/workplace.hpp"

namespace sluice::bench {

/// Adds benchmarks to a process; the workplace outlives them.
using AddBenchmarks = void (*)(const Workplace& place);

/// A benchmark program's main: Google Benchmark's options, and --small for a look whether all still runs. The
/// context says what the figures depend on; what threads gain in arithmetic is told again at the end.
/// Returns: the exit code: 2 for an option that is not understood, 1 where no workplace can be had.
int run(int argc, char** argv, std::initializer_list<AddBenchmarks> parts);

}  // namespace sluice::bench
