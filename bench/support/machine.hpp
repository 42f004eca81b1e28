#pragma once

#include "support/workplace.hpp"

namespace sluice::bench {

/// Says in the benchmarks' context what their figures depend on: CPU, instruction set, kernel, the arena's pages,
/// threads, and what those gain over one in arithmetic before anything was measured.
void add_machine_context(const Workplace& place);

}  // namespace sluice::bench
