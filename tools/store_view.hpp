#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sluice/status.hpp"
#include "store/existing.hpp"

namespace sluice::tools {

/// A commit and who holds it.
struct CommitView {
  std::uint64_t number = 0;
  std::uint64_t steps = 0;
  std::uint64_t user_bytes = 0;      ///< of the first rank that holds it
  std::vector<std::uint32_t> ranks;  ///< that hold it, ascending
  /// An engine can go on from it. Of others a record is there, but not on all ranks, or its slots may have been given
  /// out since.
  bool usable = false;
};

/// A store as its files show it.
/// Invariant: ranks and commits ascend; there is at least one rank.
struct StoreView {
  std::uint64_t id = 0;
  std::vector<store::ExistingRank> ranks;
  std::vector<CommitView> commits;
  std::vector<std::string> missing;  ///< ranks and drives that are not in the directories; empty: it is whole
  std::optional<store::Owner> owner;  ///< of the engine that has it open
  std::string trouble;      ///< why an engine refuses it, though it was committed to; empty: none does
  bool superseded = false;  ///< an engine goes on from another one in the directories, and removes this

  /// The first rank that was made to its end; null: the store's making was cut short.
  const store::ExistingRank* made() const;
  bool held_by_all(const CommitView& commit) const;
};

/// Of the engine that has one of these ranks open.
Result<std::optional<store::Owner>> owner_of(std::span<const store::ExistingRank> ranks);

/// For store::choose_store().
std::vector<store::RankSummary> summaries_of(std::span<const store::ExistingRank> ranks);

/// The stores in these directories, by id. Locks and changes nothing: one that is in use may change meanwhile.
/// Errors: as store::find_existing().
Result<std::vector<StoreView>> look_at_stores(const std::vector<std::string>& directories);

}  // namespace sluice::tools
