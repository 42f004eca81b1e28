#include "store/checksum.hpp"

#include <algorithm>
#include <vector>

#include "kernels/constants.hpp"
#include "kernels/tile_hash.hpp"

namespace sluice::store {

static_assert(kTile == kernels::kTileElements);

TileExtent tile_extent(std::uint32_t elements, std::uint32_t tile) {
  const std::uint32_t first = tile * kTile;
  return {first, std::min(kTile, elements - first)};
}

TileBytes tile_bytes(std::uint32_t elements, std::uint32_t tile, const kernels::PlaneFormat& format) {
  const TileExtent extent = tile_extent(elements, tile);
  return {format.bytes(extent.first), format.bytes(extent.count)};
}

std::uint64_t combine_tiles(std::span<const std::uint64_t> tile_hashes) {
  return kernels::plane_hash(tile_hashes.data(), tile_hashes.size());
}

std::uint64_t plane_checksum(const std::byte* plane, std::uint32_t elements,
                             const kernels::PlaneFormat& format) {
  std::vector<std::uint64_t> hashes(tile_count(elements));
  for (std::uint32_t tile = 0; tile < hashes.size(); ++tile) {
    const TileBytes bytes = tile_bytes(elements, tile, format);
    hashes[tile] = kernels::hash_bytes(plane + bytes.first, bytes.count);
  }
  return combine_tiles(hashes);
}

}  // namespace sluice::store
