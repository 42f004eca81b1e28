#include "store/slots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "memory/check.hpp"
#include "store/deal.hpp"
#include "store/offsets.hpp"
#include "store/superblock.hpp"

namespace sluice::store {
namespace {

/// Frozen records are never stepped.
std::uint64_t slots_of(const ChunkLayout& chunk, const SlotOptions& options) {
  const bool frozen = chunk.gradient_bytes == 0;
  if (frozen) return 1;
  return std::uint64_t{options.keep_commits} + (options.undo == Undo::kOn ? 2 : 1);
}

std::uint64_t spares_of(std::uint64_t chunks, const SlotOptions& options) {
  const bool some = options.spares == Spares::kSome && options.undo == Undo::kOn && options.drives > 1;
  return some ? chunks / 4 + (chunks % 4 != 0) : 0;
}

Status no_slot(std::uint32_t chunk, io::Place place, std::string_view why) {
  return Status(Code::kDataLoss, fmt::format("drive {}, offset {} is no place for chunk {}: {}", place.drive,
                                             place.offset, chunk, why));
}

[[noreturn]] void fail_not_held(std::uint32_t chunk, io::Place place) {
  memory::fail_check(
      fmt::format("drive {}, offset {} is not a slot that chunk {} holds", place.drive, place.offset, chunk));
}

}  // namespace

Result<SlotTable> SlotTable::plan(const SlotOptions& options) {
  SlotTable table;
  table.drives_.resize(options.drives);
  table.home_by_chunk_.assign(options.chunks.size(), kNone);
  std::uint32_t classes = 0;
  for (const ChunkLayout& chunk : options.chunks) {
    table.class_by_chunk_.push_back(chunk.class_index);
    table.elements_by_chunk_.push_back(chunk.elements);
    classes = std::max(classes, chunk.class_index + 1);
  }
  table.groups_.resize(std::size_t{classes} * options.drives);

  const std::vector<std::uint32_t> homes =
      deal(options.stored_chunks.size(), options.drives, options.weights);
  std::vector<std::uint64_t> slots(table.groups_.size());
  std::vector<std::uint64_t> stepped_chunks(table.groups_.size());
  std::vector<std::uint64_t> slot_bytes(classes);
  for (std::size_t i = 0; i < options.stored_chunks.size(); ++i) {
    const std::uint32_t index = options.stored_chunks[i];
    const ChunkLayout& chunk = options.chunks[index];
    table.home_by_chunk_[index] = homes[i];
    const std::size_t group = std::size_t{chunk.class_index} * options.drives + homes[i];
    slots[group] += slots_of(chunk, options);
    stepped_chunks[group] += chunk.gradient_bytes > 0;
    slot_bytes[chunk.class_index] = std::max(slot_bytes[chunk.class_index], chunk.record.bytes);
  }
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] += spares_of(stepped_chunks[i], options);

  table.container_bytes_.assign(options.drives, options.first_offset);
  for (std::size_t i = 0; i < table.groups_.size(); ++i) {
    Group& group = table.groups_[i];
    std::uint64_t& container_bytes = table.container_bytes_[i % options.drives];
    group.first_offset = container_bytes;
    group.slot_bytes = slot_bytes[i / options.drives];
    std::uint64_t bytes = 0;
    if (slots[i] >= kNone || __builtin_mul_overflow(slots[i], group.slot_bytes, &bytes) ||
        __builtin_add_overflow(container_bytes, bytes, &container_bytes) || container_bytes > kFileBytesMax) {
      return Status(Code::kResourceExhausted,
                    fmt::format("drive {}: {} slots of {} bytes do not fit one file", i % options.drives,
                                slots[i], group.slot_bytes));
    }
    table.make_slots(group, static_cast<std::uint32_t>(slots[i]));
  }
  table.finish_drives();
  return table;
}

Result<SlotTable> SlotTable::restore(const Catalog& catalog, std::span<const std::uint64_t> container_bytes,
                                     Roaming roaming) {
  SlotTable table;
  table.roaming_ = roaming;
  table.drives_.resize(container_bytes.size());
  table.container_bytes_.assign(container_bytes.begin(), container_bytes.end());
  std::uint32_t classes = 0;
  for (const StoredChunk& chunk : catalog.chunks) {
    table.class_by_chunk_.push_back(chunk.class_index);
    table.elements_by_chunk_.push_back(chunk.elements);
    table.home_by_chunk_.push_back(chunk.drive);
    classes = std::max(classes, chunk.class_index + 1);
  }
  for (const SlotRun& run : catalog.runs) classes = std::max(classes, run.class_index + 1);
  table.groups_.resize(std::size_t{classes} * container_bytes.size());
  const std::uint64_t slots_max = catalog.chunks.size() * (std::uint64_t{kKeepCommitsMax} + 3);
  for (const SlotRun& run : catalog.runs) {
    if (run.slots > slots_max || run.slots >= kNone) {
      return Status(Code::kDataLoss,
                    fmt::format("drive {}: {} slots of class {}, {} chunks need at most {}", run.drive,
                                run.slots, run.class_index, catalog.chunks.size(), slots_max));
    }
    Group& group = table.groups_[std::size_t{run.class_index} * container_bytes.size() + run.drive];
    group.first_offset = run.first_offset;
    group.slot_bytes = run.slot_bytes;
    table.make_slots(group, static_cast<std::uint32_t>(run.slots));
  }
  table.finish_drives();
  return table;
}

void SlotTable::make_slots(Group& group, std::uint32_t count) {
  group.slots.resize(count);
  for (std::uint32_t slot = 0; slot < count; ++slot) push_free(group, slot);
}

void SlotTable::finish_drives() {
  for (std::size_t drive = 0; drive < drives_.size(); ++drive) {
    drives_[drive].made_bytes = drives_[drive].unit_bytes = container_bytes_[drive];
    for (std::size_t i = drive; i < groups_.size(); i += drives_.size()) {
      if (groups_[i].slots.empty()) continue;
      drives_[drive].unit_bytes = std::gcd(drives_[drive].unit_bytes, groups_[i].slot_bytes);
    }
  }
}

std::vector<StoredChunk> SlotTable::stored_chunks() const {
  std::vector<StoredChunk> chunks(class_by_chunk_.size());
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    chunks[chunk] = {class_by_chunk_[chunk], elements_by_chunk_[chunk], home_by_chunk_[chunk]};
  }
  return chunks;
}

std::vector<SlotRun> SlotTable::runs() const {
  std::vector<SlotRun> runs;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    if (group.slots.empty()) continue;
    runs.push_back({static_cast<std::uint32_t>(i / drives_.size()),
                    static_cast<std::uint32_t>(i % drives_.size()), group.first_offset, group.slot_bytes,
                    group.slots.size()});
  }
  return runs;
}

std::uint32_t SlotTable::home_of(std::uint32_t chunk) const {
  if (chunk >= home_by_chunk_.size() || home_by_chunk_[chunk] == kNone) {
    memory::fail_check(fmt::format("chunk {} has no slots", chunk));
  }
  return home_by_chunk_[chunk];
}

bool SlotTable::may_lie_on(std::uint32_t chunk, std::uint32_t drive) const {
  const std::uint32_t home = home_of(chunk);
  return drive < drives_.size() && (roaming_ == Roaming::kAnyDrive || drive == home);
}

std::uint32_t SlotTable::slot_at(std::uint32_t chunk, io::Place place) const {
  if (!may_lie_on(chunk, place.drive)) return kNone;
  const Group& group = group_of(chunk, place.drive);
  if (place.offset < group.first_offset || group.slots.empty()) return kNone;
  const std::uint64_t distance = place.offset - group.first_offset;
  if (distance % group.slot_bytes != 0 || distance / group.slot_bytes >= group.slots.size()) return kNone;
  return static_cast<std::uint32_t>(distance / group.slot_bytes);
}

const std::uint32_t* SlotTable::references_at(std::uint32_t chunk, io::Place place) const {
  const std::uint32_t index = slot_at(chunk, place);
  if (index != kNone) {
    const Slot& slot = group_of(chunk, place.drive).slots[index];
    return slot.references > 0 && slot.chunk == chunk ? &slot.references : nullptr;
  }
  if (place.drive != home_of(chunk)) return nullptr;
  const auto grown = drives_[place.drive].grown.find(place.offset);
  if (grown == drives_[place.drive].grown.end() || grown->second.chunk != chunk) return nullptr;
  return &grown->second.references;
}

void SlotTable::push_free(Group& group, std::uint32_t slot) {
  group.slots[slot] = {.earlier = group.newest};
  (group.newest == kNone ? group.oldest : group.slots[group.newest].later) = slot;
  group.newest = slot;
}

void SlotTable::take_free(Group& group, std::uint32_t slot) {
  const auto [chunk, references, earlier, later] = group.slots[slot];
  (earlier == kNone ? group.oldest : group.slots[earlier].later) = later;
  (later == kNone ? group.newest : group.slots[later].earlier) = earlier;
}

bool SlotTable::offers(std::uint32_t chunk, std::uint32_t drive) const {
  return may_lie_on(chunk, drive) && group_of(chunk, drive).oldest != kNone;
}

io::Place SlotTable::acquire(std::uint32_t chunk, std::uint32_t drive) {
  if (!offers(chunk, drive)) {
    memory::fail_check(fmt::format("drive {} offers no slot for chunk {}", drive, chunk));
  }
  Group& group = group_of(chunk, drive);
  const std::uint32_t slot = group.oldest;
  take_free(group, slot);
  group.slots[slot] = {.chunk = chunk, .references = 1};
  return {drive, group.first_offset + slot * group.slot_bytes};
}

std::optional<io::Place> SlotTable::acquire(std::uint32_t chunk) {
  const std::uint32_t home = home_of(chunk), drives = static_cast<std::uint32_t>(drives_.size());
  for (std::uint32_t i = 0; i < drives; ++i) {
    const std::uint32_t drive = (home + i) % drives;
    if (offers(chunk, drive)) return acquire(chunk, drive);
  }
  return std::nullopt;
}

SlotTable::Growth SlotTable::next_growth(std::uint32_t chunk) const {
  const std::uint32_t drive = home_of(chunk);
  const std::uint64_t bytes = group_of(chunk, drive).slot_bytes;
  std::uint64_t offset = drives_[drive].made_bytes;
  for (const auto& [taken_offset, taken] : drives_[drive].grown) {
    if (taken_offset - offset >= bytes) break;
    offset = taken_offset + taken.bytes;
  }
  return {{drive, offset}, std::max(container_bytes_[drive], offset + bytes)};
}

void SlotTable::grow(std::uint32_t chunk, const Growth& growth) {
  const Growth next = next_growth(chunk);
  if (growth.place.drive != next.place.drive || growth.place.offset != next.place.offset ||
      growth.container_bytes != next.container_bytes || next.container_bytes > kFileBytesMax) {
    memory::fail_check(fmt::format("chunk {} grows at drive {}, offset {}, not at drive {}, offset {}", chunk,
                                   next.place.drive, next.place.offset, growth.place.drive,
                                   growth.place.offset));
  }
  const std::uint64_t bytes = group_of(chunk, next.place.drive).slot_bytes;
  drives_[next.place.drive].grown.emplace(next.place.offset, Grown{bytes, chunk, 1});
  container_bytes_[next.place.drive] = next.container_bytes;
}

Status SlotTable::retain(std::uint32_t chunk, io::Place place) {
  const std::uint32_t index = slot_at(chunk, place);
  if (index == kNone) return retain_grown(chunk, place);
  Group& group = group_of(chunk, place.drive);
  Slot& slot = group.slots[index];
  if (slot.references == 0) {
    take_free(group, index);
    slot = {.chunk = chunk};
  }
  if (slot.chunk != chunk) return no_slot(chunk, place, fmt::format("chunk {} is there", slot.chunk));
  ++slot.references;
  return {};
}

Status SlotTable::retain_grown(std::uint32_t chunk, io::Place place) {
  const std::uint32_t home = home_of(chunk);
  if (place.drive >= drives_.size())
    return no_slot(chunk, place, fmt::format("there are {}", drives_.size()));
  if (!may_lie_on(chunk, place.drive)) return no_slot(chunk, place, fmt::format("its drive is {}", home));
  const std::uint64_t bytes = group_of(chunk, home).slot_bytes;
  Drive& drive = drives_[place.drive];
  if (place.offset < drive.made_bytes) return no_slot(chunk, place, "its class has no slot there");
  if (place.drive != home) return no_slot(chunk, place, fmt::format("it grows on drive {} alone", home));
  if (place.offset % drive.unit_bytes != 0 || bytes > kFileBytesMax || place.offset > kFileBytesMax - bytes) {
    return no_slot(chunk, place,
                   fmt::format("not a multiple of {} that ends within 2^63 bytes", drive.unit_bytes));
  }
  const auto later = drive.grown.upper_bound(place.offset);
  if (later != drive.grown.begin()) {
    const auto earlier = std::prev(later);
    Grown& found = earlier->second;
    if (earlier->first == place.offset && found.chunk == chunk) {
      ++found.references;
      return {};
    }
    if (place.offset - earlier->first < found.bytes) {
      return no_slot(chunk, place, fmt::format("it overlaps that of chunk {}", found.chunk));
    }
  }
  if (later != drive.grown.end() && later->first - place.offset < bytes) {
    return no_slot(chunk, place, fmt::format("it overlaps that of chunk {}", later->second.chunk));
  }
  drive.grown.emplace(place.offset, Grown{bytes, chunk, 1});
  container_bytes_[home] = std::max(container_bytes_[home], place.offset + bytes);
  return {};
}

void SlotTable::release(std::uint32_t chunk, io::Place place) {
  if (references_at(chunk, place) == nullptr) fail_not_held(chunk, place);
  const std::uint32_t index = slot_at(chunk, place);
  if (index == kNone) {
    auto& grown = drives_[place.drive].grown;
    const auto found = grown.find(place.offset);
    if (--found->second.references == 0) grown.erase(found);
    return;
  }
  Group& group = group_of(chunk, place.drive);
  if (--group.slots[index].references == 0) push_free(group, index);
}

bool SlotTable::shared(std::uint32_t chunk, io::Place place) const {
  const std::uint32_t* references = references_at(chunk, place);
  if (references == nullptr) fail_not_held(chunk, place);
  return *references > 1;
}

}  // namespace sluice::store
