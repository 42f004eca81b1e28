#include "plan/ready_order.hpp"

#include <algorithm>

namespace sluice::plan {

void ReadyOrder::begin() {
  seen_.clear();
  ready_.assign(ready_.size(), false);
  next_ = passed_ = 0;
}

void ReadyOrder::ready(std::uint32_t item) {
  seen_.push_back(item);
  ready_[item] = true;
  if (foretold_[item]) passed_ = std::max(passed_, *foretold_[item]);
}

bool ReadyOrder::goes_as_foretold() const {
  std::size_t alike = 0;
  for (std::size_t i = 1; i < seen_.size(); ++i) {
    const std::optional<std::uint32_t> before = foretold_[seen_[i - 1]], after = foretold_[seen_[i]];
    if (before && after && *before < *after) ++alike;
  }
  return static_cast<double>(alike) >= kAlike * static_cast<double>(seen_.size() - 1);
}

void ReadyOrder::learn() {
  if (seen_.empty()) return;
  trusted_ = order_.empty() || goes_as_foretold();
  order_.swap(seen_);
  seen_.clear();
  foretold_.assign(foretold_.size(), std::nullopt);
  for (std::uint32_t place = 0; place < order_.size(); ++place) foretold_[order_[place]] = place;
}

std::optional<std::uint32_t> ReadyOrder::next() {
  while (trusted_ && next_ < order_.size()) {
    const std::uint32_t item = order_[next_++];
    if (!ready_[item]) return item;
  }
  return std::nullopt;
}

}  // namespace sluice::plan
