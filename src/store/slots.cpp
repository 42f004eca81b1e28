#include "store/slots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "memory/check.hpp"

namespace sluice::store {
namespace {

constexpr std::uint64_t kContainerBytesMax = std::numeric_limits<std::int64_t>::max();

/// keep_commits + 2 with undo, one fewer without; a scratch store keeps no commit. Frozen records are never
/// stepped.
std::uint64_t slots_of(const ChunkLayout& chunk, Undo undo) {
  const bool frozen = chunk.gradient_bytes == 0;
  return frozen || undo == Undo::kOff ? 1 : 2;
}

}  // namespace

Result<SlotTable> SlotTable::plan(const SlotOptions& options) {
  SlotTable table;
  table.drives_ = options.drives;
  table.drive_by_chunk_.assign(options.chunks.size(), kNotStored);
  std::uint32_t classes = 0;
  for (const ChunkLayout& chunk : options.chunks) {
    table.class_by_chunk_.push_back(chunk.class_index);
    classes = std::max(classes, chunk.class_index + 1);
  }
  table.groups_.resize(std::size_t{classes} * options.drives);

  std::vector<std::uint64_t> slots(table.groups_.size());
  std::vector<std::uint64_t> slot_bytes(classes);
  for (std::size_t i = 0; i < options.stored_chunks.size(); ++i) {
    const std::uint32_t index = options.stored_chunks[i];
    const ChunkLayout& chunk = options.chunks[index];
    const auto drive = static_cast<std::uint32_t>(i % options.drives);
    table.drive_by_chunk_[index] = drive;
    slots[std::size_t{chunk.class_index} * options.drives + drive] += slots_of(chunk, options.undo);
    slot_bytes[chunk.class_index] = std::max(slot_bytes[chunk.class_index], chunk.record.bytes);
  }

  table.container_bytes_.assign(options.drives, options.first_offset);
  for (std::size_t i = 0; i < table.groups_.size(); ++i) {
    Group& group = table.groups_[i];
    std::uint64_t& container_bytes = table.container_bytes_[i % options.drives];
    group.first_offset = container_bytes;
    group.slot_bytes = slot_bytes[i / options.drives];
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(slots[i], group.slot_bytes, &bytes) ||
        __builtin_add_overflow(container_bytes, bytes, &container_bytes) ||
        container_bytes > kContainerBytesMax) {
      return Status(Code::kResourceExhausted,
                    fmt::format("drive {}: {} slots of {} bytes do not fit one file", i % options.drives,
                                slots[i], group.slot_bytes));
    }
    group.taken.resize(slots[i]);
    for (std::uint64_t slot = 0; slot < slots[i]; ++slot) group.free.push_back(slot);
  }
  return table;
}

SlotTable::Group& SlotTable::group_of(std::uint32_t chunk) {
  if (chunk >= drive_by_chunk_.size() || drive_by_chunk_[chunk] == kNotStored) {
    memory::fail_check(fmt::format("chunk {} has no slots", chunk));
  }
  return groups_[std::size_t{class_by_chunk_[chunk]} * drives_ + drive_by_chunk_[chunk]];
}

std::optional<io::Place> SlotTable::acquire(std::uint32_t chunk) {
  Group& group = group_of(chunk);
  if (group.free.empty()) return std::nullopt;
  const std::uint64_t slot = group.free.front();
  group.free.pop_front();
  group.taken[slot] = true;
  return io::Place{drive_by_chunk_[chunk], group.first_offset + slot * group.slot_bytes};
}

void SlotTable::release(std::uint32_t chunk, io::Place place) {
  Group& group = group_of(chunk);
  const std::uint64_t distance =
      place.offset - group.first_offset;  // huge if the offset lies before the group
  const std::uint64_t slot = distance / group.slot_bytes;
  if (place.drive != drive_by_chunk_[chunk] || distance % group.slot_bytes != 0 ||
      slot >= group.taken.size() || !group.taken[slot]) {
    memory::fail_check(fmt::format("drive {}, offset {} is not a slot that chunk {} holds", place.drive,
                                   place.offset, chunk));
  }
  group.taken[slot] = false;
  group.free.push_back(slot);
}

}  // namespace sluice::store
