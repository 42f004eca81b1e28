#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/directory.hpp"
#include "io/file.hpp"
#include "io/place.hpp"
#include "sluice/status.hpp"
#include "store/container.hpp"
#include "store/drives.hpp"
#include "store/existing.hpp"
#include "store/lock.hpp"
#include "store/slots.hpp"
#include "store/superblock.hpp"

namespace sluice::store {

/// Whether a superblock says that a commit was durable on all ranks.
enum class Committed : std::uint8_t { kNo, kYes };

/// The files of one rank of a store: a container a drive with superblock, catalog, commit record places and
/// slots, and beside it a file without a name for spilled gradients; all preallocated, so that no write of a
/// step meets a full drive.
/// Invariant: reserved_bytes() = needed_bytes(options), with the spares that there was room for, + what frozen
/// records grew by <= nvme_budget_bytes, unless that is 0.
/// Threads: one at a time; files may be used by I/O meanwhile.
/// Lifetime: directories are kept open, so a later chdir changes nothing. No I/O may be in flight at close().
class Store {
 public:
  /// Makes, locks and preallocates the files of a new store; those of one with commits are durable, names and
  /// all, before it returns, each superblock after what it speaks of.
  /// Requires: the caller holds the drives' NamesGuards.
  /// Errors: kInvalidArgument for options out of their range; kResourceExhausted with the arithmetic if
  /// nvme_budget_bytes is too small; kNoSpace for a full drive. After a failure nothing of the new store is
  /// left.
  /// Blocks: on the drives.
  static Result<std::unique_ptr<Store>> create(const Drives& drives, const StoreOptions& options);

  /// Goes on with a store that is there and keep()s it. Its slots hold one reference for each commit of
  /// `kept`, and one more for the last of them, whose state is current.
  /// Requires: found with Claim::kLock, the caller holds the drives' NamesGuards; differences() is empty;
  /// `kept` are numbers that the rank holds, ascending, at least one.
  /// Errors: kDataLoss for a record that names what is no slot, or one beyond the end of its file; as
  /// create() for gradients and the budget. After a failure the store is as it was.
  static Result<std::unique_ptr<Store>> open(const Drives& drives, const StoreOptions& options,
                                             ExistingRank existing, std::span<const std::uint64_t> kept);

  /// What keeps a store that is there from being gone on with in place, in words, each with both values:
  /// world, drives, chunk_elements, grid, keep_commits, undo, parameters, aliases, room of the record places.
  /// Empty: open() it.
  static std::vector<std::string> differences(const ExistingRank& existing, const StoreOptions& options,
                                              std::uint32_t drives);

  /// Containers and gradients of all drives; 2^64 - 1 if that overflows.
  /// Requires: options that create() takes.
  static std::uint64_t needed_bytes(const StoreOptions& options, std::uint32_t drives) {
    return store::needed_bytes(options, drives);
  }

  /// As close(), if that was not called; nothing in a forked child.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// See SlotTable.
  std::uint32_t home_of(std::uint32_t chunk) const { return slots_.home_of(chunk); }
  bool offers_slot(std::uint32_t chunk, std::uint32_t drive) const { return slots_.offers(chunk, drive); }
  io::Place acquire_slot(std::uint32_t chunk, std::uint32_t drive) { return slots_.acquire(chunk, drive); }
  std::optional<io::Place> acquire_slot(std::uint32_t chunk) { return slots_.acquire(chunk); }
  Status retain_slot(std::uint32_t chunk, io::Place place) { return slots_.retain(chunk, place); }
  void release_slot(std::uint32_t chunk, io::Place place) { slots_.release(chunk, place); }
  bool slot_shared(std::uint32_t chunk, io::Place place) const { return slots_.shared(chunk, place); }

  /// One more slot for a frozen chunk all of whose slots are named by commits.
  /// Errors: kResourceExhausted with the arithmetic beyond nvme_budget_bytes; kNoSpace.
  /// Blocks: on the drive.
  Result<io::Place> grow_slot(std::uint32_t chunk);

  /// In gradients(drive).
  /// Requires: slot < spilled_gradient_slots.
  io::Place gradient_place(std::uint32_t slot) const { return gradient_places_[slot]; }

  std::uint32_t drive_count() const { return static_cast<std::uint32_t>(drives_.size()); }
  /// As the user named it.
  const io::Directory& directory(std::uint32_t drive) const { return *drives_[drive].root; }
  io::File& data(std::uint32_t drive) { return *drives_[drive].data; }
  /// Of every container and every file of spilled gradients: open until close().
  std::vector<int> descriptors() const;
  /// Requires: a gradient_place() there.
  io::File& gradients(std::uint32_t drive) { return *drives_[drive].gradients; }

  /// Of drive 0; the others' differ in drive and container_bytes. `committed` as it was found on any of them.
  const Superblock& superblock() const { return superblock_; }
  /// As a drive's container holds it but for `committed`, which is as given: the whole first grid of the
  /// container, for a write that is one request.
  /// Shape: target holds superblock().grid_bytes.
  void encode_superblock(std::uint32_t drive, Committed committed, std::span<std::byte> target) const;
  /// The superblocks say so from here on.
  void note_committed() { superblock_.committed = true; }

  /// Where commit record place `place` lies in every container. Requires: place < superblock().place_count.
  std::uint64_t place_offset(std::uint32_t place) const;

  /// The commits that open() found and kept, ascending, and what their places hold on each drive.
  const std::vector<HeldCommit>& kept() const { return kept_; }
  /// Places whose record is none of kept(), on any drive: those that could not be read, then the oldest
  /// commit's first. They must be erased before a slot is given out, since the slots that they name are free.
  const std::vector<PlaceOnDrive>& to_erase() const { return to_erase_; }
  /// Drives and the places there that lack a copy of the last of kept(); none of them is in to_erase().
  const std::vector<PlaceOnDrive>& to_rewrite() const { return to_rewrite_; }

  std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  /// "O_DIRECT", or "buffered" if any file is.
  std::string direct() const;
  /// Why files are buffered, one for each that is.
  std::vector<std::string> fallback_reasons() const;

  /// Drops kept(), to_erase() and to_rewrite() and gives back their memory: records hold what the user put
  /// into each commit, and nothing here needs them once they were adopted and the places repaired.
  void forget_recovery();

  /// From here on close() leaves the files for the next run.
  void keep() { keep_ = true; }

  /// Gives up the locks and, unless keep() was called, removes the store's files. Again: ok, nothing is done.
  /// Requires: the caller holds no NamesGuard of the drives.
  /// Errors: the first removal that failed; the other drives' files are removed all the same.
  Status close();

 private:
  struct Drive {
    std::shared_ptr<const io::Directory> root;  // as the user named it
    std::shared_ptr<const io::Directory> store;
    io::Directory rank;
    std::optional<Lock> lock = {};
    std::optional<io::File> data = {};
    std::optional<io::File> gradients = {};
    std::uint64_t container_bytes = 0;  // as the store was made
  };

  Store(const StoreOptions& options, const Superblock& superblock, SlotTable slots);

  static Result<std::unique_ptr<Store>> create_exactly(const Drives& drives, const StoreOptions& options);
  Status make(const Drives& drives, const StoreOptions& options, std::span<const std::byte> catalog);
  Status claim(const io::Directory& root);
  Status make_container(std::uint32_t index, std::span<const std::byte> catalog);
  Status write_superblock(std::uint32_t index) const;
  Status make_gradients(const StoreOptions& options);
  Status take_over(ExistingRank existing, std::span<const std::uint64_t> kept);
  Status take_references();
  void sort_places(const std::vector<HeldCommit>& others, const std::vector<PlaceOnDrive>& unreadable);
  Status check_grid(const io::File& file) const;
  Superblock superblock_of(std::uint32_t drive) const;
  /// Requires: the caller holds the drives' NamesGuards.
  Status leave(Drive& drive) const;

  std::vector<Drive> drives_;
  SlotTable slots_;
  Owner owner_;
  Superblock superblock_;
  std::vector<HeldCommit> kept_;
  std::vector<PlaceOnDrive> to_erase_;
  std::vector<PlaceOnDrive> to_rewrite_;
  std::vector<io::Place> gradient_places_;  // by slot
  std::uint64_t nvme_budget_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  bool keep_ = false;
};

}  // namespace sluice::store
