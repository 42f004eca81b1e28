#include "tools/own_stores.hpp"

#include <algorithm>

#include "store/existing.hpp"
#include "store/store.hpp"

namespace sluice::tools {

Result<std::vector<std::uint64_t>> list_stores(const std::vector<std::string>& directories) {
  SLUICE_ASSIGN_OR_RETURN(const store::Drives drives,
                          store::Drives::open(directories, io::Access::kReadOnly));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<store::ExistingRank> ranks,
      store::find_existing(drives.directories(), {.claim = store::Claim::kLook}, store::Owner::make()));
  std::vector<std::uint64_t> ids;
  for (const store::ExistingRank& rank : ranks) {
    if (std::ranges::find(ids, rank.store_id) == ids.end()) ids.push_back(rank.store_id);
  }
  return ids;
}

Status remove_stores(const std::vector<std::string>& directories, const std::vector<std::uint64_t>& ids) {
  SLUICE_ASSIGN_OR_RETURN(const store::Drives drives,
                          store::Drives::open(directories, io::Access::kReadWrite));
  SLUICE_ASSIGN_OR_RETURN(const auto guards, drives.guard());
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<store::ExistingRank> ranks,
      store::find_existing(drives.directories(), {.claim = store::Claim::kLock}, store::Owner::make()));
  Status first;
  for (store::ExistingRank& rank : ranks) {
    if (std::ranges::find(ids, rank.store_id) == ids.end()) continue;
    const Status removed = store::remove_existing(std::move(rank));
    if (first.ok()) first = removed;
  }
  return first;
}

}  // namespace sluice::tools
