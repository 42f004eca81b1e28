#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/directory.hpp"
#include "io/file.hpp"
#include "io/volume.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"
#include "store/layout.hpp"
#include "store/lock.hpp"
#include "store/slots.hpp"

namespace sluice::store {

struct StoreOptions {
  std::vector<std::string> directories = {};  ///< one a drive, at least one, no two the same
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint64_t store_id = 0;  ///< the same on all ranks of a run, different from other runs'
  OnExisting existing = OnExisting::kRecover;
  Undo undo = Undo::kOn;
  std::uint32_t chunk_elements = 0;  ///< that `chunks` were laid out with
  std::uint32_t grid_bytes = 4096;   ///< that `chunks` were laid out on; see grid_of()
  std::span<const ChunkLayout> chunks = {};
  std::span<const std::uint32_t> stored_chunks =
      {};  ///< that live on NVMe, each once, in the order of the step
  std::uint64_t spilled_gradient_slots = 0;
  std::uint64_t spilled_gradient_bytes = 0;  ///< of one such slot, on the grid
  std::uint64_t nvme_budget_bytes = 0;       ///< 0: what is needed
};

/// The grid that chunks must be laid out on to live in any of these directories: 4096, or more where a
/// drive's direct I/O asks for it. Makes and removes a small file in each.
Result<std::uint32_t> grid_of(std::span<const std::string> directories);

/// The files of one rank of a scratch store: a container a drive with the superblock and the slots, and
/// beside it a file without a name for spilled gradients; all preallocated, so that no write of a step meets
/// a full drive. Invariant: reserved_bytes() = needed_bytes(options) <= nvme_budget_bytes, unless that is 0.
/// Threads: one at a time; files may be used by I/O meanwhile.
/// Lifetime: directories are kept open, so a later chdir changes nothing. No I/O may be in flight at close().
class Store {
 public:
  /// Clears what dead scratch runs left, locks, makes and preallocates the files.
  /// Errors: kInvalidArgument for options out of their range and a directory named twice; kResourceExhausted
  /// with the arithmetic if nvme_budget_bytes is too small; a directory that is missing, not a directory, a
  /// link to nothing or not writable as io::Directory::open says; a store that is there as clear_existing
  /// says; kNoSpace for a full drive. After a failure nothing of the new store is left. Blocks: on the
  /// drives.
  static Result<std::unique_ptr<Store>> create(const StoreOptions& options);

  /// Containers and gradients of all drives; 2^64 - 1 if that overflows.
  /// Requires: options that create() takes, their directories need not exist.
  static std::uint64_t needed_bytes(const StoreOptions& options);

  /// As close(), if that was not called; nothing in a forked child.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// See SlotTable.
  std::optional<io::Place> acquire_slot(std::uint32_t chunk) { return slots_.acquire(chunk); }
  void release_slot(std::uint32_t chunk, io::Place place) { slots_.release(chunk, place); }

  /// In gradients(drive).
  /// Requires: slot < spilled_gradient_slots.
  io::Place gradient_place(std::uint32_t slot) const;

  std::uint32_t drive_count() const { return static_cast<std::uint32_t>(drives_.size()); }
  io::File& data(std::uint32_t drive) { return *drives_[drive].data; }
  /// Requires: spilled_gradient_slots > drive.
  io::File& gradients(std::uint32_t drive) { return *drives_[drive].gradients; }

  std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  /// "O_DIRECT", or "buffered" if any file is.
  std::string direct() const;
  /// Why files are buffered, one for each that is.
  std::vector<std::string> fallback_reasons() const;

  /// Removes the store's files and gives up its locks. Again: ok, nothing is done.
  /// Errors: the first removal that failed; the other drives' files are removed all the same.
  Status close();

 private:
  struct Drive {
    explicit Drive(io::Directory directory) : root(std::move(directory)) {}

    io::Directory root;  // as the user named it
    std::optional<io::Directory> store;
    std::optional<io::Directory> rank;
    std::optional<Lock> lock;
    std::optional<io::File> data;
    std::optional<io::File> gradients;
  };

  Store(const StoreOptions& options, SlotTable slots);

  Status claim(Drive& drive, const StoreOptions& options) const;
  Status make_files(std::uint32_t index, const StoreOptions& options);
  Status check_grid(const io::File& file, const StoreOptions& options) const;

  std::vector<Drive> drives_;
  SlotTable slots_;
  Owner owner_;
  std::array<std::byte, 16> volume_id_ = {};
  std::uint64_t gradient_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace sluice::store
