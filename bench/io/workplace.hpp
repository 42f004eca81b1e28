#pragma once

#include <cstdint>
#include <string>

namespace sluice::bench {

/// Where and how long the benchmarks work: --dir, --size, --seconds.
struct Workplace {
  std::string directory = ".";
  std::uint64_t size_bytes = std::uint64_t{1} << 30;
  double seconds = 0.3;  ///< of one side's turn
};

}  // namespace sluice::bench
