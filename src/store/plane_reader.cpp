#include "store/plane_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/tile_hash.hpp"
#include "store/checksum.hpp"
#include "store/offsets.hpp"

namespace sluice::store {
namespace {

// All of these are powers of two, so a buffer is a whole number of tiles and of grids, and full ones follow
// each other on the grid: 8 MiB are 64 tiles of 8-byte elements, 512 of bytes or 32768 of scales.
static_assert(kReaderBytes % (std::uint64_t{kTile} * 8) == 0 && kReaderBytes % (1 << 20) == 0);

/// Of a full tile.
std::uint64_t full_tile_bytes(const StoredPlane& plane) { return plane.format.bytes(kTile); }

}  // namespace

Result<PlaneReader> PlaneReader::create() {
  SLUICE_ASSIGN_OR_RETURN(
      memory::Arena buffer,
      memory::Arena::create({.bytes = kReaderBytes, .purpose = "the buffer to read a store"}));
  return PlaneReader(std::move(buffer));
}

Status PlaneReader::read(const StoredPlane& plane, std::uint32_t first, std::uint32_t count,
                         std::byte* target) {
  if (count == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(const auto* hashes, tile_hashes(plane));
  const std::uint32_t end = first + count;
  for (std::uint32_t at = first; at < end;) {
    const std::uint32_t tile = at / kTile;
    if (!holds_tile(plane, tile)) {
      // A read that goes on where the last one ended will be followed by another.
      const bool sequential = holds_plane(plane) && window_.end_tile == tile;
      SLUICE_RETURN_IF_ERROR(
          fetch_verified(plane, *hashes, tile, sequential ? tile_count(plane.elements) : tile_count(end)));
    }
    const auto here =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(end, std::uint64_t{window_.end_tile} * kTile)) -
        at;
    const std::uint64_t byte = plane.format.bytes(at) - window_.start_byte;
    std::memcpy(target, buffer_.span().data() + byte, plane.format.bytes(here));
    target += plane.format.bytes(here);
    at += here;
  }
  return {};
}

Status PlaneReader::verify(const StoredPlane& plane, const std::function<Status(std::uint64_t)>& heard) {
  return hash_all(plane, heard).status();
}

bool PlaneReader::holds_plane(const StoredPlane& plane) const {
  return window_.file == plane.file && window_.offset == plane.offset;
}

bool PlaneReader::holds_tile(const StoredPlane& plane, std::uint32_t tile) const {
  return holds_plane(plane) && tile >= window_.first_tile && tile < window_.end_tile;
}

std::uint64_t PlaneReader::hash_of(const StoredPlane& plane, std::uint32_t tile) const {
  const TileBytes bytes = tile_bytes(plane.elements, tile, plane.format);
  return kernels::hash_bytes(buffer_.span().data() + (bytes.first - window_.start_byte), bytes.count);
}

Status PlaneReader::fetch(const StoredPlane& plane, std::uint32_t first_tile, std::uint32_t end_tile) {
  window_ = {};
  const std::uint64_t start = align_down(first_tile * full_tile_bytes(plane), plane.grid_bytes);
  const std::uint64_t end =
      align_up(std::min(end_tile * full_tile_bytes(plane), plane.bytes()), plane.grid_bytes);
  SLUICE_RETURN_IF_ERROR(plane.file->read_exact(plane.offset + start, buffer_.span().first(end - start)));
  window_ = {plane.file, plane.offset, first_tile, end_tile, start};
  return {};
}

Result<std::vector<std::uint64_t>> PlaneReader::hash_all(const StoredPlane& plane,
                                                         const std::function<Status(std::uint64_t)>& heard) {
  const std::uint32_t tiles = tile_count(plane.elements);
  const auto window_tiles = static_cast<std::uint32_t>(kReaderBytes / full_tile_bytes(plane));
  std::vector<std::uint64_t> hashes;
  hashes.reserve(tiles);
  while (hashes.size() < tiles) {
    const auto first = static_cast<std::uint32_t>(hashes.size());
    SLUICE_RETURN_IF_ERROR(fetch(plane, first, std::min(tiles, first + window_tiles)));
    for (std::uint32_t tile = first; tile < window_.end_tile; ++tile) hashes.push_back(hash_of(plane, tile));
    const Status status = heard(std::min(window_.end_tile * full_tile_bytes(plane), plane.bytes()) -
                                first * full_tile_bytes(plane));
    if (!status.ok()) {
      window_ = {};  // what it holds was not compared with anything
      return status;
    }
  }
  const std::uint64_t checksum = combine_tiles(hashes);
  if (checksum == plane.checksum) return hashes;
  window_ = {};
  return Status(Code::kDataLoss,
                fmt::format("{}: the plane of {} bytes at {} hashes to {:016x}, not to {:016x}",
                            plane.file->path(), plane.bytes(), plane.offset, checksum, plane.checksum));
}

Result<const std::vector<std::uint64_t>*> PlaneReader::tile_hashes(const StoredPlane& plane) {
  auto kept = std::ranges::find_if(
      kept_, [&](const KeptPlane& one) { return one.file == plane.file && one.offset == plane.offset; });
  if (kept == kept_.end()) {
    SLUICE_ASSIGN_OR_RETURN(auto hashes, hash_all(plane, [](std::uint64_t) { return Status(); }));
    if (kept_.size() == kKeptPlanes) kept_.pop_back();
    kept_.push_back({plane.file, plane.offset, std::move(hashes)});
    kept = kept_.end() - 1;
  }
  std::rotate(kept_.begin(), kept, kept + 1);
  return &kept_.front().tile_hashes;
}

Status PlaneReader::fetch_verified(const StoredPlane& plane, const std::vector<std::uint64_t>& tile_hashes,
                                   std::uint32_t tile, std::uint32_t end_tile) {
  const std::uint64_t start = align_down(tile * full_tile_bytes(plane), plane.grid_bytes);
  const auto fitting = static_cast<std::uint32_t>((start + kReaderBytes) / full_tile_bytes(plane));
  SLUICE_RETURN_IF_ERROR(fetch(plane, tile, std::min(end_tile, fitting)));
  for (std::uint32_t at = tile; at < window_.end_tile; ++at) {
    const std::uint64_t hash = hash_of(plane, at);
    if (hash == tile_hashes[at]) continue;
    window_ = {};
    return Status(
        Code::kDataLoss,
        fmt::format("{}: elements {} to {} of the plane at {} hash to {:016x}, a moment ago to {:016x}",
                    plane.file->path(), tile_extent(plane.elements, at).first,
                    tile_extent(plane.elements, at).first + tile_extent(plane.elements, at).count - 1,
                    plane.offset, hash, tile_hashes[at]));
  }
  return {};
}

}  // namespace sluice::store
