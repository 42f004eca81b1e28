#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "io/place.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"
#include "store/catalog.hpp"
#include "store/layout.hpp"

namespace sluice::store {

/// Slots beyond those that records need, so that a drive that slows down has some that stay unused.
enum class Spares : std::uint8_t {
  kNone,
  kSome,  ///< with undo, on several drives
};

/// Which drives a chunk's records may lie on.
enum class Roaming : std::uint8_t {
  kHome,  ///< on the one that its slots were counted for
  kAnyDrive,
};

struct SlotOptions {
  std::span<const ChunkLayout> chunks = {};
  std::span<const std::uint32_t> stored_chunks =
      {};  ///< that have slots, each once, in the order of the step
  std::uint32_t drives = 1;
  std::span<const double> weights = {};  ///< what each drive is to take, finite and > 0; empty: all the same
  Spares spares = Spares::kNone;
  std::uint32_t keep_commits = 0;
  Undo undo = Undo::kOn;
  std::uint64_t first_offset = 0;  ///< of the first slot in each container, on the grid
};

/// Where records may lie and who refers to them. Each stored chunk is at home on one drive, dealt by weight in
/// the order of the step; there its class has slots of one size (the class's largest stored record), one run a
/// class:
///   slots of a class on a drive = its stored chunks at home there * (frozen: 1; without undo: keep_commits + 1;
///                                                                   with undo: keep_commits + 2)
///                                 + spares (a quarter of these chunks, rounded up)
/// A record may lie in a slot of its class on any drive, so a chunk always finds a free one while it holds fewer
/// than its share. A slot holds one chunk's record and is counted: the state that is current and every commit
/// that names it hold a reference each; with the last one it is free. A frozen chunk that is written to while a
/// commit names its slot gets another one beyond the container's end: see next_growth().
/// Threads: one at a time.
class SlotTable {
 public:
  /// Errors: kResourceExhausted if a container would pass 2^63 - 1 bytes.
  static Result<SlotTable> plan(const SlotOptions& options);

  /// The table of a store that is there; all slots are free until retain() takes what its commits name.
  /// Requires: a catalog that check() and check_runs() accept, `container_bytes` of each drive as the store
  /// was made.
  /// Errors: kDataLoss for more slots than the chunks can need.
  static Result<SlotTable> restore(const Catalog& catalog, std::span<const std::uint64_t> container_bytes,
                                   Roaming roaming = Roaming::kAnyDrive);

  /// first_offset + all slots of the drive, those of grow() included; never less than it was.
  std::uint64_t container_bytes(std::uint32_t drive) const { return container_bytes_[drive]; }

  /// For a catalog. Requires: every chunk is stored.
  std::vector<StoredChunk> stored_chunks() const;
  /// For a catalog: by class, then by drive; those without slots are left out.
  std::vector<SlotRun> runs() const;

  /// The drive that the chunk is at home on. Requires: the chunk is stored.
  std::uint32_t home_of(std::uint32_t chunk) const;
  /// Whether the chunk's record may go to a free slot there. Requires: the chunk is stored.
  bool offers(std::uint32_t chunk, std::uint32_t drive) const;
  /// A free slot of the chunk's class on that drive with one reference, the one that has been free longest, so
  /// that a step that frees slots in its order writes them again in that order. Requires: offers().
  io::Place acquire(std::uint32_t chunk, std::uint32_t drive);
  /// The same where the chunk is at home or, if all are taken there, on the next drive that has one. Requires:
  /// the chunk is stored. Returns: nothing if all are taken.
  std::optional<io::Place> acquire(std::uint32_t chunk);

  /// Where a slot for the chunk would lie in its home's longer container: in a gap between those that grew, or
  /// behind all.
  struct Growth {
    io::Place place;
    std::uint64_t container_bytes =
        0;  ///< what the container must have; beyond 2^63 - 1 there is no such file
  };
  Growth next_growth(std::uint32_t chunk) const;
  /// Takes that place with one reference. With its last one it is a gap again.
  /// Requires: what next_growth() gave last, and the container has the bytes.
  void grow(std::uint32_t chunk, const Growth& growth);

  /// One more reference. Errors: kDataLoss for a place that is not a slot of the chunk's class, or holds
  /// another chunk's record; beyond the slots that the store was made with for one that overlaps another there
  /// or is not on the chunk's home.
  Status retain(std::uint32_t chunk, io::Place place);

  /// One reference less. Requires: the chunk holds one there.
  void release(std::uint32_t chunk, io::Place place);

  /// Whether more than one reference is held. Requires: the chunk holds one there.
  bool shared(std::uint32_t chunk, io::Place place) const;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct Slot {
    std::uint32_t chunk = kNone;  // whose record it holds
    std::uint32_t references = 0;
    std::uint32_t earlier = kNone;  // in the list of free slots
    std::uint32_t later = kNone;
  };
  struct Group {  // the slots of one class on one drive
    std::uint64_t first_offset = 0;
    std::uint64_t slot_bytes = 0;
    std::vector<Slot> slots;
    std::uint32_t oldest = kNone;  // of the free ones
    std::uint32_t newest = kNone;
  };
  struct Grown {
    std::uint64_t bytes = 0;
    std::uint32_t chunk = kNone;
    std::uint32_t references = 0;
  };
  struct Drive {
    std::uint64_t made_bytes = 0;          // of the container as the store was made: grown slots lie behind
    std::uint64_t unit_bytes = 0;          // divides every offset of a slot
    std::map<std::uint64_t, Grown> grown;  // by offset
  };

  void make_slots(Group& group, std::uint32_t count);
  void finish_drives();
  Group& group_of(std::uint32_t chunk, std::uint32_t drive) {
    return groups_[class_by_chunk_[chunk] * drives_.size() + drive];
  }
  const Group& group_of(std::uint32_t chunk, std::uint32_t drive) const {
    return groups_[class_by_chunk_[chunk] * drives_.size() + drive];
  }
  bool may_lie_on(std::uint32_t chunk, std::uint32_t drive) const;
  /// The chunk's slot at that place in its class's group there; kNone where there is none.
  std::uint32_t slot_at(std::uint32_t chunk, io::Place place) const;
  /// The count of references that the chunk holds there; null if it holds none.
  const std::uint32_t* references_at(std::uint32_t chunk, io::Place place) const;
  Status retain_grown(std::uint32_t chunk, io::Place place);

  static void push_free(Group& group, std::uint32_t slot);
  static void take_free(Group& group, std::uint32_t slot);

  std::vector<std::uint32_t> class_by_chunk_;
  std::vector<std::uint32_t> elements_by_chunk_;
  std::vector<std::uint32_t> home_by_chunk_;  // a drive; kNone: not stored
  std::vector<Group> groups_;                 // [class][drive]
  std::vector<Drive> drives_;
  std::vector<std::uint64_t> container_bytes_;  // by drive
  Roaming roaming_ = Roaming::kAnyDrive;
};

}  // namespace sluice::store
