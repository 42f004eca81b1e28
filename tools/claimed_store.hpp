#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/status.hpp"
#include "store/choice.hpp"
#include "store/drives.hpp"
#include "store/existing.hpp"
#include "store/store_reader.hpp"

namespace sluice::tools {

/// All ranks of one store, kept from engines until it is dropped.
/// Threads: one at a time.
class ClaimedStore {
 public:
  /// Takes the store that an engine would go on from. Locks what it finds, for which the directories must be writable;
  /// where a file system is mounted read-only it only looks, once no process has the store open.
  /// Errors: kNotFound without a commit, or without the wanted one; kFailedPrecondition naming the process that has it
  /// open, or a directory that is not writable; kDataLoss for a store of which ranks or drives are missing; as
  /// store::find_existing().
  static Result<std::unique_ptr<ClaimedStore>> claim(const std::vector<std::string>& directories,
                                                     std::optional<std::uint64_t> wanted_commit);
  ~ClaimedStore();
  ClaimedStore(const ClaimedStore&) = delete;
  ClaimedStore& operator=(const ClaimedStore&) = delete;

  /// Its newest commit that every rank holds, or the wanted one, and the older ones kept.
  const store::Choice& choice() const { return choice_; }

  /// A reader of one of its commits, which ends the one before it. Lifetime: until the next call, or the end.
  /// Errors: as store::StoreReader::open(); after one the store is not held any more.
  Result<store::StoreReader*> open(std::uint64_t commit);

 private:
  explicit ClaimedStore(store::Drives drives) : drives_(std::move(drives)) {}

  const store::Drives drives_;
  store::Choice choice_;
  std::vector<store::ExistingRank> ranks_;      // empty while the reader has them
  std::unique_ptr<store::StoreReader> reader_;  // null until something is read
};

}  // namespace sluice::tools
