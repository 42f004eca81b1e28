#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "io/volume.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"
#include "store/layout.hpp"

namespace sluice::store {

struct SlotOptions {
  std::span<const ChunkLayout> chunks = {};
  std::span<const std::uint32_t> stored_chunks =
      {};  ///< that have slots, each once, in the order of the step
  std::uint32_t drives = 1;
  Undo undo = Undo::kOn;
  std::uint64_t first_offset = 0;  ///< of the first slot in each container, on the grid
};

/// Where records may lie and which places are free. Each stored chunk belongs to one drive, the drives taking
/// turns in the order of the step; there its class has slots of one size (the class's largest stored record),
/// one run a class:
///   slots of a class on a drive = its stored chunks there * (frozen or without undo: 1; with undo: 2)
/// so that a chunk always finds a free one while it holds fewer than its share.
/// Threads: one at a time.
class SlotTable {
 public:
  /// Errors: kResourceExhausted if a container would pass 2^63 - 1 bytes.
  static Result<SlotTable> plan(const SlotOptions& options);

  /// first_offset + all slots of the drive.
  std::uint64_t container_bytes(std::uint32_t drive) const { return container_bytes_[drive]; }

  /// A free slot of the chunk's class on its drive, the one that has been free longest, so that a step that
  /// frees slots in its order writes them again in that order. Requires: the chunk is stored. Returns:
  /// nothing if all are taken.
  std::optional<io::Place> acquire(std::uint32_t chunk);

  /// Requires: `place` came from acquire() for a chunk of this class and drive and was not given back since.
  void release(std::uint32_t chunk, io::Place place);

 private:
  struct Group {  // the slots of one class on one drive
    std::uint64_t first_offset = 0;
    std::uint64_t slot_bytes = 0;
    std::vector<bool> taken;
    std::deque<std::uint64_t> free;  // oldest first
  };
  static constexpr std::uint32_t kNotStored = 0xffffffff;

  Group& group_of(std::uint32_t chunk);

  std::uint32_t drives_ = 1;
  std::vector<std::uint32_t> class_by_chunk_;
  std::vector<std::uint32_t> drive_by_chunk_;
  std::vector<Group> groups_;  // [class][drive]
  std::vector<std::uint64_t> container_bytes_;
};

}  // namespace sluice::store
