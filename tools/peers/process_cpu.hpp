#pragma once

#include <cstdint>

namespace sluice::peers {

/// CPU time of this process, all of its threads and the kernel's work on their behalf together.
struct CpuSeconds {
  double user = 0;
  double system = 0;

  double all() const { return user + system; }
  friend CpuSeconds operator-(const CpuSeconds& a, const CpuSeconds& b) {
    return {a.user - b.user, a.system - b.system};
  }
};

/// Source: getrusage(2), RUSAGE_SELF.
CpuSeconds process_cpu();

/// CLOCK_MONOTONIC.
std::int64_t now_ns();

}  // namespace sluice::peers
