#pragma once

#include <cstdint>
#include <optional>
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
};

/// A store as its files show it.
/// Invariant: ranks and commits ascend; there is at least one rank.
struct StoreView {
  std::uint64_t id = 0;
  std::vector<store::ExistingRank> ranks;
  std::vector<CommitView> commits;
  std::vector<std::string> missing;  ///< ranks and drives that are not in the directories; empty: it is whole
  std::optional<store::Owner> owner;  ///< of the engine that has it open

  /// The first rank that was made to its end; null: the store's making was cut short.
  const store::ExistingRank* made() const;
  bool held_by_all(const CommitView& commit) const;
};

/// The stores in these directories, by id. Locks and changes nothing: one that is in use may change meanwhile.
/// Errors: as store::find_existing().
Result<std::vector<StoreView>> look_at_stores(const std::vector<std::string>& directories);

/// All ranks of one store, locked until it is dropped.
struct ClaimedStore {
  std::vector<store::ExistingRank> ranks;
  store::Choice
      choice;  ///< its newest commit that every rank holds, or the wanted one, and the older ones kept
};

/// Takes the store that an engine would go on from.
/// Errors: kNotFound without a commit, or without the wanted one; kFailedPrecondition naming the process that has it
/// open; kDataLoss for a store of which ranks or drives are missing; as store::find_existing().
Result<ClaimedStore> claim_store(const std::vector<std::string>& directories,
                                 std::optional<std::uint64_t> wanted_commit);

}  // namespace sluice::tools
