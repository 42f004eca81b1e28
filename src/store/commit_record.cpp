#include "store/commit_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "kernels/tile_hash.hpp"
#include "store/bytes.hpp"
#include "store/offsets.hpp"
#include "store/optimizer_numbers.hpp"

namespace sluice::store {
namespace {

constexpr std::string_view kMagic(
    "\x89"
    "Commit\n",
    8);
constexpr std::size_t kHeaderBytes = 112;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kGroupBytes = 8 + 8 * kOptimizerNumbers;  // without its name
constexpr std::size_t kPlaceBytes = 12;                         // of a chunk, before its checksums
constexpr std::uint32_t kPlanesInVersion1 = 4;

Status damaged(std::string what) { return Status(Code::kDataLoss, "a damaged commit record: " + what); }

/// How many of each table's entries follow the header.
struct Counts {
  std::uint32_t planes = 0;  // checksums a chunk
  std::uint32_t groups = 0;
  std::uint64_t step_counts = 0;
  std::uint64_t chunks = 0;
  std::uint64_t user_bytes = 0;
};

Result<GroupSettings> get_group(ByteReader& reader) {
  const auto name_bytes = reader.get<std::uint32_t>();
  const auto alternative = reader.get<std::uint32_t>();
  OptimizerNumbers numbers;
  for (double& number : numbers) number = reader.get_double();
  if (name_bytes > kNameBytesMax) {
    return damaged(fmt::format("a group's name of {} bytes, accepted: up to {}", name_bytes, kNameBytesMax));
  }
  GroupSettings group;
  group.name = reader.take_text(name_bytes);
  auto optimizer = optimizer_from(alternative, numbers);
  if (!optimizer.ok()) return optimizer.status().with_context(fmt::format("group \"{}\"", group.name));
  group.optimizer = *optimizer;
  return group;
}

Status get_tables(ByteReader& reader, const Counts& counts, CommitRecord& record) {
  const auto too_many = [&counts] {
    return damaged(
        fmt::format("{} groups, {} step counts, {} chunks and {} user bytes are not what follows its header",
                    counts.groups, counts.step_counts, counts.chunks, counts.user_bytes));
  };
  if (!reader.holds(counts.groups, kGroupBytes)) return too_many();
  record.groups.reserve(counts.groups);
  for (std::uint32_t index = 0; index < counts.groups; ++index) {
    SLUICE_ASSIGN_OR_RETURN(GroupSettings group, get_group(reader));
    record.groups.push_back(std::move(group));
  }
  if (!reader.holds(counts.step_counts, 8)) return too_many();
  record.step_counts.resize(counts.step_counts);
  for (std::uint64_t& step_count : record.step_counts) step_count = reader.get<std::uint64_t>();
  if (!reader.holds(counts.chunks, kPlaceBytes + std::size_t{8} * counts.planes)) return too_many();
  record.chunks.resize(counts.chunks);
  for (CommittedChunk& chunk : record.chunks) {
    chunk.place.drive = reader.get<std::uint32_t>();
    chunk.place.offset = reader.get<std::uint64_t>();
    for (std::uint64_t& checksum : std::span(chunk.checksums).first(counts.planes))
      checksum = reader.get<std::uint64_t>();
  }
  if (!reader.ok() || counts.user_bytes != reader.remaining()) return too_many();
  const auto user_bytes = reader.take(counts.user_bytes);
  record.user_bytes.assign(user_bytes.begin(), user_bytes.end());
  return {};
}

/// The record's bytes up to its checksum, once that was found right.
Result<std::span<const std::byte>> sealed_bytes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.take(kMagic.size());
  reader.take(8);  // version and planes: what they mean is known once they are known to be whole
  const auto total_bytes = reader.get<std::uint64_t>();
  if (!reader.ok()) return damaged(fmt::format("it has {} bytes", bytes.size()));
  if (!std::ranges::equal(magic, std::as_bytes(std::span(kMagic)))) {
    return damaged(fmt::format("it begins with {:#018x}", ByteReader(bytes).get<std::uint64_t>()));
  }
  if (total_bytes < kHeaderBytes + kChecksumBytes || total_bytes > bytes.size()) {
    return damaged(fmt::format("it says it has {} bytes, accepted: {} to {}", total_bytes,
                               kHeaderBytes + kChecksumBytes, bytes.size()));
  }
  const auto sealed = bytes.first(total_bytes - kChecksumBytes);
  const std::uint64_t checksum = kernels::hash_bytes(sealed.data(), sealed.size());
  const auto stored = ByteReader(bytes.subspan(sealed.size())).get<std::uint64_t>();
  if (checksum != stored)
    return damaged(fmt::format("its checksum is {:016x}, not {:016x}", checksum, stored));
  return sealed;
}

}  // namespace

RecordSize size_of(const CommitRecord& record) {
  RecordSize size{.chunks = record.chunks.size(),
                  .planes = 0,
                  .parameters = record.step_counts.size(),
                  .groups = record.groups.size(),
                  .user_bytes = record.user_bytes.size()};
  for (const GroupSettings& group : record.groups) size.group_name_bytes += group.name.size();
  if (record.version == 1) {
    size.planes = kPlanesInVersion1;
    return size;
  }
  for (const CommittedChunk& chunk : record.chunks)
    while (size.planes < kMaxPlanes && std::ranges::any_of(std::span(chunk.checksums).subspan(size.planes),
                                                           [](std::uint64_t sum) { return sum != 0; }))
      ++size.planes;
  return size;
}

std::uint64_t commit_record_bytes(const RecordSize& size) {
  std::uint64_t total = kHeaderBytes + kChecksumBytes;
  const auto add = [&total](std::uint64_t count, std::uint64_t bytes) {
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(count, bytes, &product) || __builtin_add_overflow(total, product, &total))
      total = std::numeric_limits<std::uint64_t>::max();
  };
  add(size.groups, kGroupBytes);
  add(size.group_name_bytes, 1);
  add(size.parameters, 8);
  add(size.chunks, kPlaceBytes);
  add(size.chunks, 8 * size.planes);
  add(size.user_bytes, 1);
  return total;
}

std::uint64_t encode(const CommitRecord& record, std::span<std::byte> target) {
  const RecordSize size = size_of(record);
  const std::uint64_t total_bytes = commit_record_bytes(size);
  ByteWriter writer(target);
  writer.put(kMagic);
  writer.put(record.version);
  writer.put(static_cast<std::uint32_t>(size.planes));
  writer.put(total_bytes);
  writer.put(record.volume_id);
  writer.put(record.store_id);
  writer.put(record.rank);
  writer.put(record.world);
  writer.put(record.number);
  writer.put(record.steps);
  writer.put(record.seed);
  writer.put(static_cast<std::uint32_t>(record.groups.size()));
  writer.put(std::uint32_t{0});
  writer.put(std::uint64_t{record.step_counts.size()});
  writer.put(std::uint64_t{record.chunks.size()});
  writer.put(std::uint64_t{record.user_bytes.size()});
  for (const GroupSettings& group : record.groups) {
    writer.put(static_cast<std::uint32_t>(group.name.size()));
    writer.put(static_cast<std::uint32_t>(group.optimizer.index()));
    for (const double number : numbers_of(group.optimizer)) writer.put(number);
    writer.put(group.name);
  }
  for (const std::uint64_t step_count : record.step_counts) writer.put(step_count);
  for (const CommittedChunk& chunk : record.chunks) {
    writer.put(chunk.place.drive);
    writer.put(chunk.place.offset);
    for (const std::uint64_t checksum : std::span(chunk.checksums).first(size.planes)) writer.put(checksum);
  }
  writer.put(record.user_bytes);
  writer.put(kernels::hash_bytes(target.data(), writer.at()));
  return total_bytes;
}

Result<CommitRecord> decode_commit(std::span<const std::byte> bytes) {
  if (bytes.size() >= kErasedBytes && is_blank(bytes.first(kErasedBytes))) {
    return Status(Code::kNotFound, "no commit record");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::span<const std::byte> sealed, sealed_bytes(bytes));
  ByteReader reader(sealed);
  reader.take(kMagic.size());
  const auto version = reader.get<std::uint32_t>();
  const auto planes = reader.get<std::uint32_t>();
  if (version > kCommitRecordVersion) {
    return Status(Code::kUnimplemented,
                  fmt::format("a commit record of format version {}, this build reads up to version {}",
                              version, kCommitRecordVersion));
  }
  if (version == 0 || (version == 1 ? planes != kPlanesInVersion1 : planes > kMaxPlanes)) {
    return damaged(fmt::format("version {} with {} checksums a chunk", version, planes));
  }
  reader.take(8);  // its bytes
  CommitRecord record;
  record.version = version;
  Counts counts{.planes = planes};
  std::ranges::copy(reader.take(record.volume_id.size()), record.volume_id.begin());
  record.store_id = reader.get<std::uint64_t>();
  record.rank = reader.get<std::uint32_t>();
  record.world = reader.get<std::uint32_t>();
  record.number = reader.get<std::uint64_t>();
  record.steps = reader.get<std::uint64_t>();
  record.seed = reader.get<std::uint64_t>();
  counts.groups = reader.get<std::uint32_t>();
  const auto reserved = reader.get<std::uint32_t>();
  counts.step_counts = reader.get<std::uint64_t>();
  counts.chunks = reader.get<std::uint64_t>();
  counts.user_bytes = reader.get<std::uint64_t>();
  if (record.rank >= record.world || record.number == 0 || reserved != 0) {
    return damaged(fmt::format("rank {} of {}, commit {}, reserved {}", record.rank, record.world,
                               record.number, reserved));
  }
  SLUICE_RETURN_IF_ERROR(get_tables(reader, counts, record));
  if (version > 1 && size_of(record).planes != planes) {
    return damaged(fmt::format("{} checksums a chunk, the last of them 0 in each", planes));
  }
  return record;
}

Status check(const CommitRecord& record, const Superblock& superblock, const Catalog& catalog) {
  if (record.volume_id != superblock.volume_id || record.store_id != superblock.store_id ||
      record.rank != superblock.rank || record.world != superblock.world) {
    return Status(
        Code::kDataLoss,
        fmt::format("commit {} is of rank {} of {} of store {:016x}, it lies in rank {} of {} of store "
                    "{:016x}, or in another volume of it",
                    record.number, record.rank, record.world, record.store_id, superblock.rank,
                    superblock.world, superblock.store_id));
  }
  std::uint64_t groups = 0;
  for (const StoredParameter& parameter : catalog.parameters)
    groups = std::max(groups, std::uint64_t{parameter.group} + 1);
  if (record.step_counts.size() != catalog.parameters.size() ||
      record.chunks.size() != catalog.chunks.size() || record.groups.size() < groups) {
    return Status(
        Code::kDataLoss,
        fmt::format("commit {} has {} step counts, {} chunks and {} groups, its store {}, {} and at least {}",
                    record.number, record.step_counts.size(), record.chunks.size(), record.groups.size(),
                    catalog.parameters.size(), catalog.chunks.size(), groups));
  }
  for (const StoredParameter& parameter : catalog.parameters) {
    const GroupSettings& group = record.groups[parameter.group];
    if (group.optimizer.index() == parameter.optimizer) continue;
    return Status(Code::kDataLoss,
                  fmt::format("commit {} has optimizer {} in group \"{}\", its store {}", record.number,
                              group.optimizer.index(), group.name, parameter.optimizer));
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> slot_bytes;  // by class and drive
  for (const SlotRun& run : catalog.runs) slot_bytes[{run.class_index, run.drive}] = run.slot_bytes;
  for (std::size_t index = 0; index < record.chunks.size(); ++index) {
    const io::Place place = record.chunks[index].place;
    const StoredChunk& chunk = catalog.chunks[index];
    const bool roams = superblock.version >= kRoamingVersion;
    const auto run = slot_bytes.find({chunk.class_index, roams ? place.drive : chunk.drive});
    const std::uint64_t last_offset = kFileBytesMax - (run == slot_bytes.end() ? 0 : run->second);
    if (run != slot_bytes.end() && run->first.second == place.drive &&
        place.offset >= superblock.slots_offset && place.offset <= last_offset &&
        place.offset % superblock.grid_bytes == 0) {
      continue;
    }
    return Status(
        Code::kDataLoss,
        fmt::format(
            "commit {} has chunk {} on drive {} at {}, accepted: {} {}, multiples of {} from {} to {}",
            record.number, index, place.drive, place.offset,
            roams ? "a drive with slots of its class, or" : "drive", chunk.drive, superblock.grid_bytes,
            superblock.slots_offset, last_offset));
  }
  return {};
}

}  // namespace sluice::store
