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
  std::uint32_t rank = 0;
  std::uint32_t world = 0;         ///< 0: the making was cut short
  std::uint32_t keep_commits = 0;  ///< 0: scratch
  std::uint32_t committed = 0;
  std::uint32_t whole = 0;                                   ///< no drive is missing
  std::uint32_t drives = 0;                                  ///< that its superblocks count
  std::uint32_t missing_drive = 0;                           ///< the first one; `drives` if none is
  std::uint32_t held = 0;                                    ///< of `commits`
  std::array<std::uint64_t, kKeepCommitsMax + 1> commits{};  ///< numbers, ascending; the newest ones
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

/// The store of the greatest generation of which every rank of its world holds a commit in common, and there
/// the newest such commit, or `wanted`. Usable are the newest keep_commits of those in common: an older one's
/// slots may have been given out again. A store of a smaller generation than the chosen one is not asked for
/// what it lacks: the chosen one was made from it, and removing it was cut short. Pure: every rank decides
/// the same from the same summaries.
/// Returns: nothing where no store was ever committed to.
/// Errors: kNotFound when `wanted` is not usable, with those that are; kDataLoss where a store was committed
/// to (or a part of it holds a commit and the rest is not there) and no commit is held by all its ranks,
/// naming the ranks that are missing, lack a drive or hold other commits; kFailedPrecondition for two stores
/// of one generation, of which neither was made from the other.
Result<std::optional<Choice>> choose_store(std::span<const RankSummary> summaries,
                                           std::optional<std::uint64_t> wanted);

}  // namespace sluice::store
