#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/planes.hpp"

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

/// Bytes [first, first + count) of a plane: the values of a tile's elements. Of a plane of scales those of its 64
/// granules.
struct TileBytes {
  std::uint64_t first = 0;
  std::size_t count = 0;
};

/// Requires: tile < tile_count(elements).
TileBytes tile_bytes(std::uint32_t elements, std::uint32_t tile, const kernels::PlaneFormat& format);

/// A plane's checksum from the XXH3-64 of its tiles, in order of the tiles; they may have been hashed in any
/// order by any thread. Padding after the last element is in no tile.
std::uint64_t combine_tiles(std::span<const std::uint64_t> tile_hashes);

/// The checksum of a whole plane in memory.
/// Requires: `plane` holds format.bytes(elements).
/// Cost: one pass over the plane.
std::uint64_t plane_checksum(const std::byte* plane, std::uint32_t elements,
                             const kernels::PlaneFormat& format);

}  // namespace sluice::store
