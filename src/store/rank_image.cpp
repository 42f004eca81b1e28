#include "store/rank_image.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice::store {
namespace {

Status check_drives(const ExistingRank& existing) {
  if (!existing.superblock) return Status(Code::kDataLoss, "its making was cut short, it holds nothing");
  if (!existing.whole) return Status(Code::kDataLoss, existing.missing);
  for (std::uint32_t drive = 0; drive < existing.superblock->drives; ++drive) {
    const bool there = drive < existing.drives.size() && existing.drives[drive].data &&
                       existing.drives[drive].superblock && existing.drives[drive].superblock->drive == drive;
    if (!there) {
      return Status(Code::kDataLoss,
                    fmt::format("its drive {} of {} is missing", drive, existing.superblock->drives));
    }
  }
  return {};
}

Result<std::size_t> find_commit(const ExistingRank& existing, std::uint64_t commit) {
  std::vector<std::uint64_t> numbers;
  for (const HeldCommit& held : existing.commits) numbers.push_back(held.record.number);
  const auto found = std::ranges::find(numbers, commit);
  if (found != numbers.end()) return static_cast<std::size_t>(found - numbers.begin());
  return Status(Code::kDataLoss, numbers.empty() ? fmt::format("it holds no commit, {} was asked for", commit)
                                                 : fmt::format("it holds the commits {}, not {}",
                                                               fmt::join(numbers, ", "), commit));
}

}  // namespace

Result<RankImage> RankImage::open(ExistingRank existing, std::uint64_t commit) {
  const std::string name = describe_rank(
      existing.store_id, existing.rank, existing.superblock ? existing.superblock->world : existing.rank + 1);
  const auto open_checked = [&]() -> Result<RankImage> {
    SLUICE_RETURN_IF_ERROR(check_drives(existing));
    SLUICE_ASSIGN_OR_RETURN(const std::size_t index, find_commit(existing, commit));
    SLUICE_RETURN_IF_ERROR(check(existing.catalog));
    SLUICE_ASSIGN_OR_RETURN(ElementLayout layout, layout_of(existing.catalog, *existing.superblock));
    SLUICE_RETURN_IF_ERROR(check(existing.commits[index].record, *existing.superblock, existing.catalog));
    return RankImage(std::move(existing), index, std::move(layout));
  };
  auto image = open_checked();
  return image.ok() ? std::move(image) : Result<RankImage>(image.status().with_context(name));
}

Range RankImage::shard_of(std::uint32_t parameter) const {
  const StoredParameter& stored = catalog().parameters[parameter];
  return store::shard_of(count_elements(stored.shape).value(), stored.rank, stored.world);
}

StoredPlane RankImage::plane_of(std::uint32_t chunk, std::size_t plane) const {
  const ChunkLayout& layout = layout_.chunks()[chunk];
  const CommittedChunk& committed = record().chunks[chunk];
  return {.file = &*existing_.drives[committed.place.drive].data,
          .offset = committed.place.offset + layout.record.plane_offsets[plane],
          .elements = layout.elements,
          .format = class_of(chunk).planes[plane],
          .grid_bytes = superblock().grid_bytes,
          .checksum = committed.checksums[plane]};
}

std::string describe_rank(std::uint64_t store_id, std::uint32_t rank, std::uint32_t world) {
  return fmt::format("rank {} of {} of store {:016x}", rank, world, store_id);
}

}  // namespace sluice::store
