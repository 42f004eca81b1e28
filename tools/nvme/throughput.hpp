#pragma once

#include <vector>

#include "tools/nvme/timeline.hpp"

namespace sluice::tools {

/// How fast bytes were finished. Units: GiB/s.
/// Invariant: slowest_tenth <= mean; peak_second is the greatest of `per_second`.
struct Throughput {
  double mean = 0;
  double slowest_tenth = 0;  ///< of the time
  double peak_second = 0;
  double sustained = 0;            ///< median of the second half of the seconds
  std::vector<double> per_second;  ///< the last one may be the last half or more
};

/// Over the first `seconds` of a measurement.
/// Requires: seconds > 0.
Throughput throughput_of(const Timeline& timeline, double seconds);

/// The middle one, or the mean of the two in the middle; 0 without values.
double median(std::vector<double> values);

}  // namespace sluice::tools
