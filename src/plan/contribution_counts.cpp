#include "plan/contribution_counts.hpp"

#include <algorithm>
#include <utility>

namespace sluice::plan {

std::vector<std::uint32_t> ContributionCounts::expected(std::uint32_t micro_batches) const {
  if (micro_batches == 0) return std::vector<std::uint32_t>(items_.size(), kUnknown);
  if (micro_batches == seen_micro_batches_) return seen_;
  std::vector<std::uint32_t> counts;
  counts.reserve(items_.size());
  for (const Item& item : items_) {
    const std::uint64_t times = item.often == Often::kOnceAStep ? 1 : micro_batches;
    counts.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(times * item.names, kUnknown)));
  }
  return counts;
}

void ContributionCounts::learn(std::uint32_t micro_batches, std::vector<std::uint32_t> counts) {
  if (micro_batches == 0) return;
  seen_micro_batches_ = micro_batches;
  seen_ = std::move(counts);
}

}  // namespace sluice::plan
