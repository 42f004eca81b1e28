#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace sluice::memory {

/// Gives out ranges of [0, capacity): the smallest free range that fits, the lowest of equals; neighbours
/// merge when they come back. Offsets and sizes are multiples of 256.
/// Invariant: free_bytes() + sum of align_up(bytes, 256) over what is allocated = align_down(capacity, 256).
/// Threads: one at a time.
/// Cost: O(log n) in the number of free ranges.
class RangeAllocator {
 public:
  static constexpr std::uint64_t kAlignment = 256;

  explicit RangeAllocator(std::uint64_t capacity_bytes);

  /// Returns: an offset, or nothing when no free range is long enough. A request of 0 bytes takes no room
  /// and always gets align_down(capacity, 256), which no other request gets.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);

  /// Requires: an offset that allocate() gave, once for each time; else the process ends.
  void release(std::uint64_t offset);

  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t largest_free_bytes() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  using Free = std::map<std::uint64_t, std::uint64_t>;  // offset -> bytes

  void add_free(std::uint64_t offset, std::uint64_t bytes);
  Free::iterator remove_free(Free::iterator range);

  std::uint64_t capacity_bytes_;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t empty_allocations_ = 0;
  Free by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;   // (bytes, offset)
  std::unordered_map<std::uint64_t, std::uint64_t> allocated_;  // offset -> bytes
};

}  // namespace sluice::memory
