#include "stored_world.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>

#include "kernels/tile_hash.hpp"
#include "store/checksum.hpp"
#include "store/names.hpp"
#include "store/superblock.hpp"

namespace sluice::store {
namespace {

namespace fs = std::filesystem;

std::uint64_t align_up(std::uint64_t value, std::uint64_t grid) { return (value + grid - 1) / grid * grid; }

}  // namespace

Catalog catalog_of(std::vector<StoredParameter> parameters, std::vector<StoredAlias> aliases,
                   const CatalogOptions& options) {
  Catalog catalog{std::move(parameters), std::move(aliases), {}, {}};
  const ElementLayout layout = ElementLayout::build(specs_of(catalog), options.layout).value();
  std::map<std::pair<std::uint32_t, std::uint32_t>, SlotRun> runs;
  std::vector<std::uint64_t> slot_bytes(layout.classes().size());
  for (const ChunkLayout& chunk : layout.chunks())
    slot_bytes[chunk.class_index] = std::max(slot_bytes[chunk.class_index], chunk.record.bytes);
  for (std::uint32_t index = 0; index < layout.chunks().size(); ++index) {
    const ChunkLayout& chunk = layout.chunks()[index];
    const std::uint32_t drive = index % options.drives;
    catalog.chunks.push_back({chunk.class_index, chunk.elements, drive});
    SlotRun& run = runs[{chunk.class_index, drive}];
    run.class_index = chunk.class_index;
    run.drive = drive;
    run.slot_bytes = slot_bytes[chunk.class_index];
    run.slots += options.slots_per_chunk;
  }
  std::vector<std::uint64_t> ends(options.drives, options.slots_offset);
  for (auto& [key, run] : runs) {
    run.first_offset = ends[run.drive];
    ends[run.drive] += run.slots * run.slot_bytes;
    catalog.runs.push_back(run);
  }
  return catalog;
}

StoredWorld::StoredWorld(std::string directory, WorldOptions options)
    : directory_(std::move(directory)), options_(options), random_(options.seed) {
  for (const std::string& path : directories()) fs::create_directories(path);
}

std::vector<std::string> StoredWorld::directories() const {
  std::vector<std::string> paths;
  for (std::uint32_t drive = 0; drive < options_.drives; ++drive)
    paths.push_back(directory_ + "/drive-" + std::to_string(drive));
  return paths;
}

std::string StoredWorld::container(std::uint32_t rank, std::uint32_t drive) const {
  return directories()[drive] + "/" + store_name(options_.store_id) + "/" + rank_name(rank) + "/" + kDataName;
}

const std::vector<std::byte>& StoredWorld::values(const StoredParameter& parameter, const PlaneFormat& plane,
                                                  std::uint64_t values) {
  const std::string name = parameter.name + "/" + std::string(plane_name(plane.plane));
  std::vector<std::byte>& bytes = values_[{name, values}];
  if (bytes.empty()) {
    bytes.resize(plane.bytes(count_elements(parameter.shape).value()));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
  }
  return bytes;
}

void StoredWorld::add_ranks(const Model& model) {
  while (ranks() < options_.world) {
    Model mine = model;
    for (StoredParameter& parameter : mine.parameters) {
      parameter.rank = ranks();
      parameter.world = options_.world;
    }
    add_rank(mine);
  }
}

void StoredWorld::add_rank(const Model& model) {
  const std::uint64_t grid = options_.layout.grid_bytes;
  Rank rank;
  Superblock superblock{.store_id = options_.store_id,
                        .rank = ranks(),
                        .world = options_.world,
                        .drives = options_.drives,
                        .keep_commits = 1,
                        .chunk_elements = options_.layout.chunk_elements,
                        .grid_bytes = options_.layout.grid_bytes};
  for (std::byte& byte : superblock.volume_id) byte = static_cast<std::byte>(random_());
  CatalogOptions catalog_options{options_.layout, options_.drives, 0, 3};
  superblock.catalog_offset = align_up(kSuperblockBytes, grid);
  superblock.catalog_bytes = encode(catalog_of(model.parameters, model.aliases, catalog_options)).size();
  superblock.places_offset = superblock.catalog_offset + align_up(superblock.catalog_bytes, grid);
  superblock.place_count = 2;
  superblock.place_bytes = align_up(65536, grid);
  superblock.slots_offset = superblock.places_offset + 2 * superblock.place_bytes;
  catalog_options.slots_offset = superblock.slots_offset;
  rank.catalog = catalog_of(model.parameters, model.aliases, catalog_options);
  rank.layout = ElementLayout::build(specs_of(rank.catalog), options_.layout).value();
  const std::vector<std::byte> catalog = encode(rank.catalog);
  superblock.catalog_checksum = kernels::hash_bytes(catalog.data(), catalog.size());
  superblock.committed = true;
  for (superblock.drive = 0; superblock.drive < options_.drives; ++superblock.drive) {
    superblock.container_bytes = superblock.slots_offset;
    for (const SlotRun& run : rank.catalog.runs) {
      if (run.drive == superblock.drive)
        superblock.container_bytes =
            std::max(superblock.container_bytes, run.first_offset + run.slots * run.slot_bytes);
    }
    rank.superblocks.push_back(superblock);
  }

  CommitRecord& record = rank.record;
  record.volume_id = superblock.volume_id;
  record.store_id = superblock.store_id;
  record.rank = superblock.rank;
  record.world = superblock.world;
  record.number = options_.commit;
  record.steps = 1000;
  record.seed = 77;
  std::uint32_t groups = 0;
  for (const StoredParameter& parameter : model.parameters) groups = std::max(groups, parameter.group + 1);
  for (std::uint32_t group = 0; group < groups; ++group)
    record.groups.push_back({"group " + std::to_string(group), AdamW{}});
  for (const StoredParameter& parameter : model.parameters)
    record.groups[parameter.group].optimizer = optimizer_kinds()[parameter.optimizer].defaults;
  for (std::uint32_t group = 0; group < groups; ++group) {
    Optimizer& optimizer = record.groups[group].optimizer;
    kind_of(optimizer).numbers.front().set(optimizer, 0.125 * (group + 1));
  }
  for (std::size_t index = 0; index < model.parameters.size(); ++index)
    record.step_counts.push_back(1000 - index);
  record.user_bytes.assign(ranks() + 1, static_cast<std::byte>(0x40 + ranks()));
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint64_t>> free;
  for (const SlotRun& run : rank.catalog.runs) {
    std::vector<std::uint64_t>& slots = free[{run.class_index, run.drive}];
    for (std::uint64_t slot = 0; slot < run.slots; ++slot)
      slots.push_back(run.first_offset + slot * run.slot_bytes);
    std::ranges::shuffle(slots, random_);
  }
  std::vector<std::vector<std::byte>> records;
  for (std::uint32_t chunk = 0; chunk < rank.catalog.chunks.size(); ++chunk) {
    const StoredChunk& stored = rank.catalog.chunks[chunk];
    std::vector<std::uint64_t>& slots = free[{stored.class_index, stored.drive}];
    CommittedChunk committed{.place = {stored.drive, slots.back()}};
    slots.pop_back();
    records.push_back(record_bytes(rank, chunk, model.values, committed));
    record.chunks.push_back(committed);
  }
  write_containers(rank, records);
  ranks_.push_back(std::move(rank));
}

std::vector<std::byte> StoredWorld::record_bytes(const Rank& rank, std::uint32_t chunk, std::uint64_t values,
                                                 CommittedChunk& committed) {
  const ChunkLayout& layout = rank.layout.chunks()[chunk];
  const std::vector<PlaneFormat>& planes = rank.layout.classes()[layout.class_index].planes;
  std::vector<std::byte> bytes(layout.record.bytes, std::byte{0xee});
  for (std::size_t plane = 0; plane < planes.size(); ++plane) {
    std::byte* const target = bytes.data() + layout.record.plane_offsets[plane];
    const PlaneFormat& format = planes[plane];
    std::fill_n(target, format.bytes(layout.elements), std::byte{0});
    for (const Segment& segment : rank.layout.segments_of(chunk)) {
      const std::vector<std::byte>& whole =
          this->values(rank.catalog.parameters[segment.parameter], planes[plane], values);
      std::memcpy(target + format.bytes(segment.offset), whole.data() + format.bytes(segment.first),
                  format.bytes(segment.count));
    }
    committed.checksums[plane] = plane_checksum(target, layout.elements, format);
  }
  return bytes;
}

void StoredWorld::write_containers(const Rank& rank,
                                   const std::vector<std::vector<std::byte>>& records) const {
  const std::vector<std::byte> catalog = encode(rank.catalog);
  for (const Superblock& superblock : rank.superblocks) {
    std::vector<std::byte> bytes(superblock.container_bytes, std::byte{0x5a});  // where nothing was written
    std::fill_n(bytes.begin(), superblock.slots_offset, std::byte{0});
    std::ranges::copy(encode(superblock), bytes.begin());
    std::ranges::copy(catalog, bytes.begin() + static_cast<std::ptrdiff_t>(superblock.catalog_offset));
    encode(rank.record, std::span(bytes).subspan(superblock.places_offset + superblock.place_bytes));
    for (std::size_t chunk = 0; chunk < records.size(); ++chunk) {
      const io::Place place = rank.record.chunks[chunk].place;
      if (place.drive == superblock.drive)
        std::ranges::copy(records[chunk], bytes.begin() + static_cast<std::ptrdiff_t>(place.offset));
    }
    const std::string path = container(superblock.rank, superblock.drive);
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file) throw std::runtime_error("not written: " + path);
  }
}

std::vector<ExistingRank> StoredWorld::find() const {
  std::vector<io::Directory> opened;
  for (const std::string& path : directories())
    opened.push_back(io::Directory::open(path, io::Access::kReadOnly).value());
  auto found = find_existing(opened, {.claim = Claim::kLook}, Owner::make());
  if (!found.ok()) throw std::runtime_error(found.status().to_string());
  return std::move(found).value();
}

void StoredWorld::flip(std::uint32_t rank, std::uint32_t drive, std::uint64_t offset) const {
  std::fstream file(container(rank, drive), std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 1));
  if (!file) throw std::runtime_error("not flipped: " + container(rank, drive));
}

std::uint64_t StoredWorld::plane_offset(std::uint32_t rank, std::uint32_t chunk, std::size_t plane) const {
  return ranks_[rank].record.chunks[chunk].place.offset +
         ranks_[rank].layout.chunks()[chunk].record.plane_offsets[plane];
}

}  // namespace sluice::store
