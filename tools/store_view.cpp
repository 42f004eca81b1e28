#include "tools/store_view.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "store/store.hpp"

namespace sluice::tools {
namespace {

std::vector<CommitView> commits_of(const std::vector<store::ExistingRank>& ranks) {
  std::map<std::uint64_t, CommitView> commits;
  for (const store::ExistingRank& rank : ranks) {
    for (const store::HeldCommit& held : rank.commits) {
      const store::CommitRecord& record = held.record;
      CommitView& commit =
          commits
              .try_emplace(record.number,
                           CommitView{record.number, record.steps, record.user_bytes.size(), {}})
              .first->second;
      commit.ranks.push_back(rank.rank);
    }
  }
  std::vector<CommitView> all;
  for (auto& [number, commit] : commits) all.push_back(std::move(commit));
  return all;
}

std::vector<std::string> missing_of(const StoreView& view) {
  std::vector<std::string> missing;
  for (const store::ExistingRank& rank : view.ranks) {
    if (rank.superblock && !rank.whole)
      missing.push_back(fmt::format("rank {}: {}", rank.rank, rank.missing));
  }
  const store::ExistingRank* made = view.made();
  if (made == nullptr) return missing;
  for (std::uint32_t rank = 0, next = 0; rank < made->superblock->world; ++rank) {
    while (next < view.ranks.size() && view.ranks[next].rank < rank) ++next;
    if (next == view.ranks.size() || view.ranks[next].rank != rank || !view.ranks[next].superblock)
      missing.push_back(fmt::format("rank {} of {}", rank, made->superblock->world));
  }
  return missing;
}

Result<std::optional<store::Owner>> owner_of(const StoreView& view) {
  for (const store::ExistingRank& rank : view.ranks) {
    for (const store::ExistingDrive& drive : rank.drives) {
      SLUICE_ASSIGN_OR_RETURN(const std::optional<store::Owner> owner, store::live_owner(drive.rank));
      if (owner) return owner;
    }
  }
  return std::optional<store::Owner>();
}

}  // namespace

const store::ExistingRank* StoreView::made() const {
  const auto rank = std::ranges::find_if(ranks, [](const auto& one) { return one.superblock.has_value(); });
  return rank == ranks.end() ? nullptr : &*rank;
}

bool StoreView::held_by_all(const CommitView& commit) const {
  return missing.empty() && made() != nullptr && commit.ranks.size() == made()->superblock->world;
}

Result<std::vector<StoreView>> look_at_stores(const std::vector<std::string>& directories) {
  SLUICE_ASSIGN_OR_RETURN(const store::Drives drives,
                          store::Drives::open(directories, io::Access::kReadOnly));
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<store::ExistingRank> ranks,
      store::find_existing(drives.directories(), {.claim = store::Claim::kLook}, store::Owner::make()));
  std::map<std::uint64_t, StoreView> views;
  for (store::ExistingRank& rank : ranks) {
    StoreView& view = views[rank.store_id];
    view.id = rank.store_id;
    view.ranks.push_back(std::move(rank));
  }
  std::vector<StoreView> all;
  for (auto& [id, view] : views) {
    std::ranges::sort(view.ranks, {}, &store::ExistingRank::rank);
    view.commits = commits_of(view.ranks);
    view.missing = missing_of(view);
    SLUICE_ASSIGN_OR_RETURN(view.owner, owner_of(view));
    all.push_back(std::move(view));
  }
  return all;
}

Result<ClaimedStore> claim_store(const std::vector<std::string>& directories,
                                 std::optional<std::uint64_t> wanted_commit) {
  SLUICE_ASSIGN_OR_RETURN(const store::Drives drives,
                          store::Drives::open(directories, io::Access::kReadWrite));
  SLUICE_ASSIGN_OR_RETURN(const auto guards, drives.guard());
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<store::ExistingRank> ranks,
      store::find_existing(drives.directories(), {.claim = store::Claim::kLock}, store::Owner::make()));
  std::vector<store::RankSummary> summaries;
  for (const store::ExistingRank& rank : ranks) summaries.push_back(store::summarize(rank));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<store::Choice> choice,
                          store::choose_store(summaries, wanted_commit));
  if (!choice) {
    return Status(Code::kNotFound, fmt::format("no store with a commit in {}", fmt::join(directories, ", ")));
  }
  std::erase_if(ranks, [&](const store::ExistingRank& rank) { return rank.store_id != choice->store_id; });
  std::ranges::sort(ranks, {}, &store::ExistingRank::rank);
  return ClaimedStore{std::move(ranks), *choice};
}

}  // namespace sluice::tools
