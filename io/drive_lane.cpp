#include "io/drive_lane.hpp"

#include <algorithm>

namespace sluice::io {

DriveLane::DriveLane(std::uint32_t depth) : depth_(depth) { unseen_.fill(kMemory); }

Transfer* DriveLane::start() {
  if (in_flight_ >= depth_) return nullptr;
  std::size_t chosen = kPriorityCount;
  std::size_t end = 0;               // of the classes with room
  std::uint32_t lower = in_flight_;  // of the classes below
  for (bool kept_free = false; end < kPriorityCount && !kept_free; ++end) {
    lower -= held_[end];
    kept_free = unseen_[end] < kMemory && lower >= depth_ - reserve();  // what is left is for this class
    if (waiting_[end].empty()) continue;
    if (chosen == kPriorityCount || passed_over_[end] >= kPatience) chosen = end;
  }
  if (chosen == kPriorityCount) return nullptr;

  passed_over_[chosen] = 0;
  unseen_[chosen] = 0;
  for (std::size_t c = chosen + 1; c < end; ++c) {
    if (!waiting_[c].empty()) ++passed_over_[c];
  }
  for (std::size_t c = 0; c < chosen; ++c) unseen_[c] = std::min(unseen_[c] + 1, kMemory);
  ++held_[chosen];
  ++in_flight_;
  return waiting_[chosen].first;
}

Transfer* DriveLane::first_waiting() const {
  for (const TransferList& list : waiting_) {
    if (!list.empty()) return list.first;
  }
  return nullptr;
}

}  // namespace sluice::io
