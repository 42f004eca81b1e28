#include "store/deal.hpp"

#include <numeric>

namespace sluice::store {

std::vector<std::uint32_t> deal(std::uint64_t count, std::uint32_t drives, std::span<const double> given) {
  std::vector<double> weights(given.begin(), given.end());
  weights.resize(drives, 1);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> dealt(drives);
  std::vector<std::uint32_t> drive_of;
  drive_of.reserve(count);
  for (std::uint64_t i = 1; i <= count; ++i) {
    // Rounding may leave none behind its share: then any whose next is due first.
    std::uint32_t chosen = 0;
    bool chosen_is_behind = false;
    for (std::uint32_t drive = 0; drive < drives; ++drive) {
      const bool behind = dealt[drive] < static_cast<double>(i) * weights[drive] / sum;
      const auto due = [&](std::uint32_t of) { return (dealt[of] + 1) / weights[of]; };
      if (drive == 0 || behind > chosen_is_behind ||
          (behind == chosen_is_behind && due(drive) < due(chosen))) {
        chosen = drive;
        chosen_is_behind = behind;
      }
    }
    ++dealt[chosen];
    drive_of.push_back(chosen);
  }
  return drive_of;
}

}  // namespace sluice::store
