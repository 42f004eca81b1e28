#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/trace.hpp"

namespace sluice::plan {

struct Candidate {
  std::uint32_t item = 0;
  Distance next_use = kNever;
};

/// The candidate needed last: the one to evict, and the gradient to spill. Of equals the lowest item, so that
/// the choice does not depend on their order. Returns: its item; nothing without candidates. Source: Belady
/// 1966, MIN.
std::optional<std::uint32_t> farthest(std::span<const Candidate> candidates);

/// One read to start, and what leaves the room first; no `evict`: it goes to free room.
struct Fetch {
  std::uint32_t item = 0;
  std::optional<std::uint32_t> evict;
  friend bool operator==(const Fetch&, const Fetch&) = default;
};

struct ReadAheadRoom {
  std::uint32_t free_frames = 0;
  /// Items whose frame may be reused at once: whole, not pinned, not on their way in or out.
  std::span<const std::uint32_t> evictable = {};
  /// Fetches returned at most, for example what the queue takes.
  std::uint32_t fetches_max = 0;
  /// Of them with an eviction. The earlier an item makes room, the likelier it is read once more than
  /// Belady's choice would: on a ring of items boundless read-ahead hits as seldom as LRU. Give the depth
  /// that hides the drive's latency less the items read ahead and not used yet: with depth d of f frames a
  /// repeated trace then takes at most the reads of Belady's choice on f - d frames.
  std::uint32_t evictions_max = 0;
  /// Accesses looked at; bounds the cost, one pass is never exceeded.
  Distance horizon = kNever;
};

/// What to read ahead from here: each next missing item in the order of the trace while room is free or can
/// be made by evicting an item needed later than the one fetched (do no harm); else nothing. `held(item)`
/// says whether an item is present or on its way; it is not called for evicted ones' sake. Returns: fetches
/// in order of need, each item once. Cost: the accesses looked at + e log e of the evictable. Source: Cao,
/// Felten, Karlin, Li 1995, "A study of integrated prefetching and caching strategies", rules 1 to 4.
std::vector<Fetch> read_ahead(const Cursor& cursor, const std::function<bool(std::uint32_t)>& held,
                              const ReadAheadRoom& room);

}  // namespace sluice::plan
