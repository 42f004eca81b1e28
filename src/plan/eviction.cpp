#include "plan/eviction.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <unordered_set>

namespace sluice::plan {
namespace {

bool needed_later(const Candidate& a, const Candidate& b) {
  return a.next_use != b.next_use ? a.next_use > b.next_use : a.item < b.item;
}

}  // namespace

std::optional<std::uint32_t> farthest(std::span<const Candidate> candidates) {
  const auto found = std::min_element(candidates.begin(), candidates.end(), needed_later);
  if (found == candidates.end()) return std::nullopt;
  return found->item;
}

std::vector<Fetch> read_ahead(const Cursor& cursor, const std::function<bool(std::uint32_t)>& held,
                              const ReadAheadRoom& room) {
  std::vector<Candidate> victims;
  for (const std::uint32_t item : room.evictable) victims.push_back({item, cursor.next_use(item)});
  std::sort(victims.begin(), victims.end(), needed_later);

  std::vector<Fetch> fetches;
  std::unordered_set<std::uint32_t> chosen;
  std::uint32_t free_frames = room.free_frames;
  const auto last_victim =
      victims.begin() + std::min<std::ptrdiff_t>(room.evictions_max, std::ssize(victims));
  auto victim = victims.begin();
  const Distance end = std::min<Distance>(room.horizon, cursor.size());
  for (Distance ahead = 0; ahead < end && fetches.size() < room.fetches_max; ++ahead) {
    const bool can_evict = victim != last_victim && victim->next_use > ahead;
    if (free_frames == 0 && !can_evict) break;
    const std::uint32_t item = cursor.item_ahead(ahead);
    if (held(item) || !chosen.insert(item).second) continue;
    if (free_frames > 0) {
      --free_frames;
      fetches.push_back({item, std::nullopt});
    } else {
      fetches.push_back({item, victim->item});
      ++victim;
    }
  }
  return fetches;
}

}  // namespace sluice::plan
