#include "store/rank_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/tile_hash.hpp"
#include "store/commit_record.hpp"
#include "store/layout.hpp"

namespace sluice::store {
namespace {

Result<std::vector<std::byte>> read_catalog(const ExistingDrive& drive) {
  const Superblock& superblock = *drive.superblock;
  std::vector<std::byte> bytes(superblock.catalog_bytes);
  SLUICE_RETURN_IF_ERROR(drive.data->read_exact(superblock.catalog_offset, bytes));
  const std::uint64_t checksum = kernels::hash_bytes(bytes.data(), bytes.size());
  if (checksum != superblock.catalog_checksum) {
    return Status(Code::kDataLoss,
                  fmt::format("{}: the catalog is damaged: its checksum is {:016x}, not {:016x}",
                              drive.data->path(), checksum, superblock.catalog_checksum));
  }
  return bytes;
}

/// Whether the record is of this rank of this store, as it was made.
bool belongs(const CommitRecord& record, const ExistingRank& rank, const ElementLayout& layout) {
  if (!check(record, *rank.superblock, rank.catalog).ok()) return false;
  for (std::size_t chunk = 0; chunk < record.chunks.size(); ++chunk) {
    const std::size_t planes = layout.classes()[layout.chunks()[chunk].class_index].planes.size();
    const auto beyond = std::span(record.chunks[chunk].checksums).subspan(planes);
    if (!std::ranges::all_of(beyond, [](std::uint64_t checksum) { return checksum == 0; })) return false;
  }
  return true;
}

/// Reads the commit records of one rank.
class RecordSearch {
 public:
  RecordSearch(ExistingRank& rank, const ElementLayout& layout)
      : rank_(rank), layout_(layout), bytes_(rank.superblock->place_bytes) {}

  Status run() {
    const auto drives = static_cast<std::uint32_t>(drives_of(rank_).size());
    for (std::uint32_t drive = 0; drive < drives; ++drive) {
      for (std::uint32_t place = 0; place < rank_.superblock->place_count; ++place) {
        SLUICE_RETURN_IF_ERROR(look_at({drive, place}));
      }
    }
    for (const auto& [at, status] : failed_) {
      if (!is_held(at.place)) return status;
      rank_.unreadable.push_back(at);
    }
    for (auto& [number, commit] : held_) rank_.commits.push_back(std::move(commit));
    return {};
  }

 private:
  Status look_at(PlaceOnDrive at) {
    const io::File& data = *rank_.drives[at.drive].data;
    const auto in_context = [&](const Status& status) {
      return status.with_context(fmt::format("{}: commit record place {}", data.path(), at.place));
    };
    const Superblock& superblock = *rank_.superblock;
    const Status status =
        data.read_exact(superblock.places_offset + at.place * superblock.place_bytes, bytes_);
    if (!status.ok()) {
      failed_.emplace_back(at, in_context(status));
      return {};
    }
    auto record = decode_commit(bytes_);
    const Code code = record.status().code();
    if (code == Code::kNotFound || code == Code::kDataLoss) return {};
    if (!record.ok()) return in_context(record.status());
    if (!belongs(*record, rank_, layout_)) return {};
    HeldCommit& commit = held_[record->number];
    if (commit.places.empty()) {
      commit.record = std::move(*record);
      commit.places.resize(drives_of(rank_).size());
    }
    if (commit.places[at.drive]) {
      return Status(Code::kDataLoss, fmt::format("{}: places {} and {} both hold commit {}", data.path(),
                                                 *commit.places[at.drive], at.place, commit.record.number));
    }
    commit.places[at.drive] = at.place;
    return {};
  }

  bool is_held(std::uint32_t place) const {
    return std::ranges::any_of(held_, [&](const auto& numbered) {
      return std::ranges::find(numbered.second.places, place) != numbered.second.places.end();
    });
  }

  ExistingRank& rank_;
  const ElementLayout& layout_;
  std::vector<std::byte> bytes_;
  std::map<std::uint64_t, HeldCommit> held_;  // by number
  std::vector<std::pair<PlaceOnDrive, Status>> failed_;
};

}  // namespace

std::span<ExistingDrive> drives_of(ExistingRank& rank) {
  const auto end =
      std::ranges::find_if_not(rank.drives, [](const auto& drive) { return drive.superblock.has_value(); });
  return std::span(rank.drives).first(static_cast<std::size_t>(end - rank.drives.begin()));
}

Status read_tables(ExistingRank& rank) {
  const std::span<ExistingDrive> drives = drives_of(rank);
  for (const ExistingDrive& drive : drives) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, read_catalog(drive));
    if (&drive == &drives[0]) {
      auto catalog = decode_catalog(bytes);
      if (!catalog.ok()) return catalog.status().with_context(drive.data->path());
      rank.catalog = std::move(*catalog);
    }
    SLUICE_RETURN_IF_ERROR(check_runs(rank.catalog, *drive.superblock).with_context(drive.data->path()));
  }
  auto layout = layout_of(rank.catalog, *rank.superblock);
  if (!layout.ok()) return layout.status().with_context(drives[0].data->path());
  return RecordSearch(rank, *layout).run();
}

}  // namespace sluice::store
