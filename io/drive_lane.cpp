#include "io/drive_lane.hpp"

#include <algorithm>

namespace sluice::io {

DriveLane::DriveLane(std::uint32_t depth) : depth_(depth) { unseen_.fill(kMemory); }

Transfer* DriveLane::start() {
  if (in_flight_ >= depth_) return nullptr;
  std::array<bool, kPriorityCount> has_room = {};
  std::size_t chosen = kPriorityCount;
  std::uint32_t lower = in_flight_;  // of the classes below
  bool kept_free = false;            // what is left is for a class seen lately
  for (std::size_t c = 0; c < kPriorityCount && !kept_free; ++c) {
    lower -= held_[c];
    kept_free = unseen_[c] < kMemory && lower >= depth_ - reserve();
    if (waiting_[c].empty()) continue;
    has_room[c] = true;
    if (chosen == kPriorityCount || passed_over_[c] >= kPatience) chosen = c;
  }
  if (chosen == kPriorityCount) return nullptr;

  passed_over_[chosen] = 0;
  unseen_[chosen] = 0;
  for (std::size_t c = chosen + 1; c < kPriorityCount; ++c) {
    if (has_room[c]) ++passed_over_[c];
  }
  for (std::size_t c = 0; c < chosen; ++c) unseen_[c] = std::min(unseen_[c] + 1, kMemory);
  ++held_[chosen];
  ++in_flight_;
  return waiting_[chosen].first;
}

void DriveLane::end(Priority priority) {
  --held_[index(priority)];
  --in_flight_;
}

Transfer* DriveLane::first_waiting() const {
  for (const TransferList& list : waiting_) {
    if (!list.empty()) return list.first;
  }
  return nullptr;
}

}  // namespace sluice::io
