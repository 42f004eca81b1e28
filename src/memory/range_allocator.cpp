#include "memory/range_allocator.hpp"

#include <fmt/format.h>

#include "memory/check.hpp"

namespace sluice::memory {

RangeAllocator::RangeAllocator(std::uint64_t capacity_bytes)
    : capacity_bytes_(capacity_bytes / kAlignment * kAlignment) {
  if (capacity_bytes_ != 0) add_free(0, capacity_bytes_);
}

std::optional<std::uint64_t> RangeAllocator::allocate(std::uint64_t bytes) {
  if (bytes == 0) {
    ++empty_allocations_;
    return capacity_bytes_;
  }
  if (bytes > capacity_bytes_) return std::nullopt;
  const std::uint64_t needed_bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto best = by_size_.lower_bound({needed_bytes, 0});
  if (best == by_size_.end()) return std::nullopt;
  const auto [range_bytes, offset] = *best;
  remove_free(by_offset_.find(offset));
  if (range_bytes > needed_bytes) add_free(offset + needed_bytes, range_bytes - needed_bytes);
  allocated_.emplace(offset, needed_bytes);
  return offset;
}

void RangeAllocator::release(std::uint64_t offset) {
  if (offset == capacity_bytes_ && empty_allocations_ != 0) {
    --empty_allocations_;
    return;
  }
  const auto range = allocated_.find(offset);
  if (range == allocated_.end())
    fail_check(fmt::format("RangeAllocator: released offset {} of capacity {} is not allocated", offset,
                           capacity_bytes_));
  std::uint64_t bytes = range->second;
  allocated_.erase(range);

  auto after = by_offset_.lower_bound(offset);
  if (after != by_offset_.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = remove_free(after);
  }
  if (after != by_offset_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      remove_free(before);
    }
  }
  add_free(offset, bytes);
}

void RangeAllocator::add_free(std::uint64_t offset, std::uint64_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
  free_bytes_ += bytes;
}

RangeAllocator::Free::iterator RangeAllocator::remove_free(Free::iterator range) {
  by_size_.erase({range->second, range->first});
  free_bytes_ -= range->second;
  return by_offset_.erase(range);
}

}  // namespace sluice::memory
