#include "tools/store_view.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "store/store.hpp"

namespace sluice::tools {
namespace {

constexpr std::size_t kNamedMax = 8;  // missing ranks; a damaged world may be of any size

std::vector<CommitView> commits_of(const std::vector<store::ExistingRank>& ranks) {
  std::map<std::uint64_t, CommitView> commits;
  for (const store::ExistingRank& rank : ranks) {
    for (const store::HeldCommit& held : rank.commits) {
      const store::CommitRecord& record = held.record;
      CommitView& commit =
          commits
              .try_emplace(record.number,
                           CommitView{record.number, record.steps, record.user_bytes.size(), {}, {}})
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
  const std::uint64_t world = made->superblock->world;
  std::uint64_t there = 0, named = 0, expected = 0;
  const auto miss_until = [&](std::uint64_t rank) {
    for (; expected < rank && named < kNamedMax; ++expected, ++named)
      missing.push_back(fmt::format("rank {} of {}", expected, world));
  };
  for (const store::ExistingRank& rank : view.ranks) {
    if (!rank.superblock || rank.rank >= world) continue;
    miss_until(rank.rank);
    expected = std::uint64_t{rank.rank} + 1;
    ++there;
  }
  miss_until(world);
  if (const std::uint64_t more = world - there - named; more > 0)
    missing.push_back(fmt::format("{} more ranks of {}", more, world));
  return missing;
}

// Tells which commits an engine would go on from. `chosen` is what it takes of all the stores in the directories.
void mark_usable(StoreView& view, const Result<std::optional<store::Choice>>& chosen) {
  const store::ExistingRank* made = view.made();
  if (made == nullptr || made->superblock->keep_commits == 0) return;
  view.superseded = chosen.ok() && *chosen && (*chosen)->store_id != view.id;
  if (view.superseded) return;
  const auto own = store::choose_store(summaries_of(view.ranks), std::nullopt);
  if (!own.ok()) view.trouble = own.status().message();
  if (!own.ok() || !*own) return;
  for (CommitView& commit : view.commits)
    commit.usable = std::ranges::binary_search((*own)->kept, commit.number);
}

}  // namespace

const store::ExistingRank* StoreView::made() const {
  const auto rank = std::ranges::find_if(ranks, [](const auto& one) { return one.superblock.has_value(); });
  return rank == ranks.end() ? nullptr : &*rank;
}

bool StoreView::held_by_all(const CommitView& commit) const {
  return missing.empty() && made() != nullptr && commit.ranks.size() == made()->superblock->world;
}

Result<std::optional<store::Owner>> owner_of(std::span<const store::ExistingRank> ranks) {
  for (const store::ExistingRank& rank : ranks) {
    for (const store::ExistingDrive& drive : rank.drives) {
      SLUICE_ASSIGN_OR_RETURN(const std::optional<store::Owner> owner, store::live_owner(drive.rank));
      if (owner) return owner;
    }
  }
  return std::optional<store::Owner>();
}

std::vector<store::RankSummary> summaries_of(std::span<const store::ExistingRank> ranks) {
  std::vector<store::RankSummary> summaries;
  for (const store::ExistingRank& rank : ranks) summaries.push_back(store::summarize(rank));
  return summaries;
}

Result<std::vector<StoreView>> look_at_stores(const std::vector<std::string>& directories) {
  SLUICE_ASSIGN_OR_RETURN(const store::Drives drives,
                          store::Drives::open(directories, io::Access::kReadOnly));
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<store::ExistingRank> ranks,
      store::find_existing(drives.directories(), {.claim = store::Claim::kLook}, store::Owner::make()));
  const auto chosen = store::choose_store(summaries_of(ranks), std::nullopt);
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
    mark_usable(view, chosen);
    SLUICE_ASSIGN_OR_RETURN(view.owner, owner_of(view.ranks));
    all.push_back(std::move(view));
  }
  return all;
}

}  // namespace sluice::tools
