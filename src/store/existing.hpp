#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/directory.hpp"
#include "io/file.hpp"
#include "sluice/status.hpp"
#include "store/catalog.hpp"
#include "store/choice.hpp"
#include "store/commit_record.hpp"
#include "store/lock.hpp"
#include "store/superblock.hpp"

namespace sluice::store {

enum class Claim : std::uint8_t {
  kLock,  ///< to go on with, or to replace: refused while its owner lives
  kLook,  ///< to read only; nothing is locked, a live store may change under the reader
};

/// What of a store to look for.
struct FindOptions {
  Claim claim = Claim::kLock;
  /// Ranks that are equal to `rank` modulo `world`: so the ranks of a new world share the old ones among
  /// them, whatever their number. world 1: all of them.
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

/// One rank's directory on one drive.
struct ExistingDrive {
  std::shared_ptr<const io::Directory> root;  ///< as the user named it, with a descriptor of its own
  std::shared_ptr<const io::Directory> store;
  io::Directory rank;
  std::optional<Lock> lock = {};      ///< with kLock; none where the making was cut short before it: no data
  std::optional<io::File> data = {};  ///< none where it was cut short before that; with kLook read-only
  std::optional<Superblock> superblock = {};  ///< none where it was cut short before that
};

/// A commit record place of one drive.
struct PlaceOnDrive {
  std::uint32_t drive = 0;
  std::uint32_t place = 0;
  friend bool operator==(const PlaceOnDrive&, const PlaceOnDrive&) = default;
};

/// A commit that a rank holds: one whole copy of its record is on one of its drives.
struct HeldCommit {
  CommitRecord record;
  std::vector<std::optional<std::uint32_t>> places;  ///< by ExistingRank::drives; none: no copy there
};

/// One rank's files of one store, over all drives on which they were found.
/// Invariant: drives that have a superblock come first, ascending by their index, no index twice, all of one
/// volume; commits ascend in number.
struct ExistingRank {
  std::uint64_t store_id = 0;
  std::uint32_t rank = 0;
  std::vector<ExistingDrive> drives = {};
  /// Of its first drive, `committed` if any drive says so; none: the making was cut short, it holds nothing.
  std::optional<Superblock> superblock = {};
  Catalog catalog = {};  ///< empty in a scratch store
  std::vector<HeldCommit> commits = {};
  /// Places that could not be read, which hold no commit here: another drive has a whole record in the same
  /// place.
  std::vector<PlaceOnDrive> unreadable = {};
  bool whole = false;  ///< every drive that the superblock counts is here
  std::string missing =
      {};  ///< otherwise which are not: "drive 1 of 2 (volume 3f…) is in none of the directories"
};

/// Looks through the drives' directories. With Claim::kLock what is found is locked and signed by `owner`
/// until the result is dropped, and store directories with nothing in them are removed. What is no store
/// (files, directories of other names, directories that another user keeps to himself) is not looked into. A
/// place whose commit record was erased, is torn or is of another store is a commit that the rank does not
/// hold.
/// Requires: with kLock the caller holds every directory's NamesGuard.
/// Errors: kFailedPrecondition naming the process of a live store, a link in place of a store, or a store of
/// this user's that he may not open; that of a place that cannot be read where no other drive has a whole
/// record in it, since the newest commit may lie there; kDataLoss naming the file for a damaged or foreign
/// superblock or catalog, a container that ends before its slots do, a drive that belongs to another volume
/// or is there twice; kUnimplemented for a newer format; with kLock kAlreadyExists for a rank's directory
/// with files in it that are not a store's.
/// Blocks: on the drives.
Result<std::vector<ExistingRank>> find_existing(std::span<const io::Directory> directories,
                                                const FindOptions& options, const Owner& owner);

/// For choose_store().
RankSummary summarize(const ExistingRank& rank);

/// Removes a rank's own files and directories, and the store's when it was the last rank's; names that are
/// gone are no error. Requires: found with kLock; the caller holds the directories' NamesGuards.
/// Errors: the first removal that failed; the other drives' files are removed all the same.
Status remove_existing(ExistingRank rank);

/// The same for what a running store has of its own on one drive.
Status remove_rank(const io::Directory& directory, const io::Directory& store, const io::Directory& rank);

}  // namespace sluice::store
