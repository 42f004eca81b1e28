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

std::uint64_t combine_tiles(std::span<const std::uint64_t> tile_hashes) {
  return kernels::plane_hash(tile_hashes.data(), tile_hashes.size());
}

std::uint64_t plane_checksum(const std::byte* plane, std::uint32_t elements, DType dtype) {
  const std::size_t element_bytes = dtype_bytes(dtype);
  std::vector<std::uint64_t> hashes(tile_count(elements));
  for (std::uint32_t tile = 0; tile < hashes.size(); ++tile) {
    const TileExtent extent = tile_extent(elements, tile);
    hashes[tile] = kernels::hash_bytes(plane + extent.first * element_bytes, extent.count * element_bytes);
  }
  return combine_tiles(hashes);
}

}  // namespace sluice::store
