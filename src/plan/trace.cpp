#include "plan/trace.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice::plan {

Trace::Trace(std::vector<std::uint32_t> items) : items_(std::move(items)), positions_(items_.size()) {
  std::iota(positions_.begin(), positions_.end(), 0u);
  std::sort(positions_.begin(), positions_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return std::pair(items_[a], a) < std::pair(items_[b], b);
  });
  for (std::uint32_t i = 0; i < size(); ++i) {
    const std::uint32_t item = items_[positions_[i]];
    if (!distinct_.empty() && distinct_.back() == item) continue;
    distinct_.push_back(item);
    starts_.push_back(i);
  }
  starts_.push_back(size());
}

std::span<const std::uint32_t> Trace::occurrences(std::uint32_t item) const {
  const auto found = std::lower_bound(distinct_.begin(), distinct_.end(), item);
  if (found == distinct_.end() || *found != item) return {};
  const auto index = static_cast<std::size_t>(found - distinct_.begin());
  return std::span(positions_).subspan(starts_[index], starts_[index + 1] - starts_[index]);
}

Distance Trace::distance(std::uint32_t position, std::uint32_t item) const {
  const auto where = occurrences(item);
  if (where.empty()) return kNever;
  const auto next = std::lower_bound(where.begin(), where.end(), position);
  if (next != where.end()) return *next - position;
  return Distance{size()} - position + where.front();
}

Trace TraceRecorder::finish() { return Trace(std::exchange(items_, {})); }

bool Cursor::access(std::uint32_t item) {
  const Distance ahead = next_use(item);
  if (ahead == kNever) return false;
  position_ = static_cast<std::uint32_t>((position_ + ahead + 1) % size());
  return ahead == 0;
}

std::uint32_t Cursor::item_ahead(Distance distance) const {
  return trace_->items()[static_cast<std::size_t>((position_ + distance % size()) % size())];
}

}  // namespace sluice::plan
