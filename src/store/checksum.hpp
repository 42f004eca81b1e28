#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/types.hpp"

namespace sluice::store {

/// Elements of a plane that are hashed as one leaf of its checksum.
inline constexpr std::uint32_t kTile = 16384;

/// ceil(elements / 16 Ki); every plane of a chunk has the same tiles.
constexpr std::uint32_t tile_count(std::uint32_t elements) {
  return elements / kTile + (elements % kTile != 0);
}

/// Elements [first, first + count) of a chunk.
struct TileExtent {
  std::uint32_t first = 0;
  std::uint32_t count = 0;  ///< 16 Ki but in the last tile
};

/// Requires: tile < tile_count(elements).
TileExtent tile_extent(std::uint32_t elements, std::uint32_t tile);

/// A plane's checksum from the XXH3-64 of its tiles, in order of the tiles; they may have been hashed in any
/// order by any thread. Padding after the last element is in no tile.
std::uint64_t combine_tiles(std::span<const std::uint64_t> tile_hashes);

/// The checksum of a whole plane in memory.
/// Requires: `plane` holds elements * dtype_bytes(dtype).
/// Cost: one pass over the plane.
std::uint64_t plane_checksum(const std::byte* plane, std::uint32_t elements, DType dtype);

}  // namespace sluice::store
