#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "sluice/status.hpp"
#include "store/superblock.hpp"

namespace sluice::store {

/// What a rank tells the others of one old rank's files that it found. Shape: exchanged as bytes.
struct RankSummary {
  std::uint64_t store_id = 0;
  std::uint64_t generation = 0;
  std::uint64_t parent_store_id = 0;  ///< 0: made from none
  std::uint32_t rank = 0;
  std::uint32_t world = 0;         ///< 0: the making was cut short
  std::uint32_t keep_commits = 0;  ///< 0: scratch
  std::uint32_t committed = 0;
  std::uint32_t whole = 0;                                   ///< no drive is missing
  std::uint32_t drives = 0;                                  ///< that its superblocks count
  std::uint32_t missing_drive = 0;                           ///< the first one; `drives` if none is
  std::uint32_t held = 0;                                    ///< of `commits`
  std::array<std::uint64_t, kKeepCommitsMax + 1> commits{};  ///< numbers, ascending; the newest ones
  std::array<std::uint64_t, kKeepCommitsMax + 1> steps{};    ///< finished ones of each
};
static_assert(std::has_unique_object_representations_v<RankSummary>,
              "bytes without a meaning are not exchanged");

/// What to go on from.
struct Choice {
  std::uint64_t store_id = 0;
  std::uint64_t generation = 0;
  std::uint32_t world = 1;
  std::uint64_t commit = 0;
  std::vector<std::uint64_t> kept = {};  ///< numbers that stay usable, ascending, `commit` the last
};

/// The store of which every rank of its world holds a commit in common (the same number after the same steps: ranks
/// that fell out of step may have written one number twice), and there the newest such commit, or `wanted`. Usable are the newest keep_commits of those in common: an older one's slots may have been given
/// out again. A store was made from another if it names that as its parent and has the greater generation; of
/// such a pair the one that was made is chosen once it has a usable commit. Beside the chosen store there may
/// be the one that it was made from, whole or what an unfinished removal left of it, and one made from it
/// that was never committed and has no usable commit. So whatever is there beside the chosen store may be
/// removed, and everything where nothing is chosen: it is scratch, unfinished or superseded.
/// Pure: every rank decides the same from the same summaries.
/// Returns: nothing where no store was ever committed to.
/// Errors: kNotFound when `wanted` is not usable, with those that are; kDataLoss where a store was committed
/// to (or a part of it holds a commit and the rest is not there) and no commit is held by all its ranks,
/// naming the ranks that are missing, lack a drive or hold other commits; kFailedPrecondition for a store
/// that was committed to, wholly or in part, beside the chosen one, of which neither was made from the other.
Result<std::optional<Choice>> choose_store(std::span<const RankSummary> summaries,
                                           std::optional<std::uint64_t> wanted);

}  // namespace sluice::store
