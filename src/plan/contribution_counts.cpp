#include "plan/contribution_counts.hpp"

#include <algorithm>

namespace sluice::plan {

std::vector<std::uint32_t> ContributionCounts::expected(std::uint32_t micro_batches) const {
  if (micro_batches == 0) return std::vector<std::uint32_t>(items_.size(), kUnknown);
  std::vector<std::uint32_t> counts;
  counts.reserve(items_.size());
  const auto known = std::ranges::find(numbers_, micro_batches, &Number::micro_batches);
  if (known != numbers_.end()) {
    for (const Seen& seen : known->seen) counts.push_back(seen.expected);
    return counts;
  }
  for (const Item& item : items_) {
    const std::uint64_t times = item.often == Often::kOnceAStep ? 1 : micro_batches;
    counts.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(times * item.names, kUnknown)));
  }
  return counts;
}

void ContributionCounts::learn(std::uint32_t micro_batches, const std::vector<std::uint32_t>& counts) {
  if (micro_batches == 0) return;
  const auto known = std::ranges::find(numbers_, micro_batches, &Number::micro_batches);
  if (known == numbers_.end()) {
    if (numbers_.size() == kNumbers) numbers_.pop_back();
    Number& number = numbers_.emplace_front();
    number.micro_batches = micro_batches;
    for (const std::uint32_t count : counts) number.seen.push_back({.expected = count});
    return;
  }
  std::rotate(numbers_.begin(), known, known + 1);
  for (std::size_t item = 0; item < counts.size(); ++item) {
    Seen& seen = numbers_.front().seen[item];
    if (counts[item] >= seen.expected) {
      seen = {.expected = counts[item]};
      continue;
    }
    seen.most_below = seen.steps_below == 0 ? counts[item] : std::max(seen.most_below, counts[item]);
    if (++seen.steps_below == kStepsBelow) seen = {.expected = seen.most_below};
  }
}

}  // namespace sluice::plan
