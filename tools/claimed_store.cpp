#include "tools/claimed_store.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/store_view.hpp"

namespace sluice::tools {
namespace {

Status refuse_live(const std::vector<store::ExistingRank>& ranks) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<store::Owner> owner, owner_of(ranks));
  if (!owner) return {};
  return {Code::kFailedPrecondition,
          fmt::format("{}: in use by process {}", ranks.front().drives.front().store->path(), owner->pid)};
}

}  // namespace

Result<std::unique_ptr<ClaimedStore>> ClaimedStore::claim(const std::vector<std::string>& directories,
                                                          std::optional<std::uint64_t> wanted_commit) {
  auto claim = store::Claim::kLock;
  auto drives = store::Drives::open(directories, io::Access::kReadWrite);
  if (drives.status().native() == EROFS) {
    claim = store::Claim::kLook;
    drives = store::Drives::open(directories, io::Access::kReadOnly);
  }
  if (!drives.ok()) return drives.status();
  std::unique_ptr<ClaimedStore> claimed(new ClaimedStore(std::move(drives).value()));
  std::vector<store::ExistingRank>& ranks = claimed->ranks_;
  SLUICE_ASSIGN_OR_RETURN(const auto guards, claimed->drives_.guard());
  SLUICE_ASSIGN_OR_RETURN(
      ranks, store::find_existing(claimed->drives_.directories(), {.claim = claim}, store::Owner::make()));
  if (claim == store::Claim::kLook) SLUICE_RETURN_IF_ERROR(refuse_live(ranks));
  SLUICE_ASSIGN_OR_RETURN(std::optional<store::Choice> choice,
                          store::choose_store(summaries_of(ranks), wanted_commit));
  if (!choice) {
    return Status(Code::kNotFound, fmt::format("no store with a commit in {}", fmt::join(directories, ", ")));
  }
  std::erase_if(ranks, [&](const store::ExistingRank& rank) { return rank.store_id != choice->store_id; });
  std::ranges::sort(ranks, {}, &store::ExistingRank::rank);
  claimed->choice_ = std::move(*choice);
  return claimed;
}

Result<store::StoreReader*> ClaimedStore::open(std::uint64_t commit) {
  if (reader_) ranks_ = store::StoreReader::close(std::move(reader_));
  // A reader that cannot be opened lets go of the locks.
  SLUICE_ASSIGN_OR_RETURN(const auto guards, drives_.guard());
  SLUICE_ASSIGN_OR_RETURN(
      reader_,
      store::StoreReader::open(std::exchange(ranks_, {}), {.store_id = choice_.store_id, .commit = commit}));
  return reader_.get();
}

ClaimedStore::~ClaimedStore() {
  // Another engine must not look for stores between a lock's end and its signature's. Where the guard is not to be had,
  // letting go without it is better than not at all.
  const auto guards = drives_.guard();
  reader_.reset();
  ranks_.clear();
}

}  // namespace sluice::tools
