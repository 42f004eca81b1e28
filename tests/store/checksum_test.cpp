#include "store/checksum.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/tile_hash.hpp"

namespace sluice::store {
namespace {

TEST(Tiles, CountsRoundUp) {
  EXPECT_EQ(tile_count(0), 0u);
  EXPECT_EQ(tile_count(256), 1u);
  EXPECT_EQ(tile_count(16384), 1u);
  EXPECT_EQ(tile_count(16384 + 256), 2u);
  EXPECT_EQ(tile_count(1u << 30), 65536u);
  EXPECT_EQ(tile_count(0xffffffff), 262144u);
}

TEST(Tiles, CoverTheChunkOnce) {
  for (const std::uint32_t elements : {256u, 16384u, 16640u, 49152u, 50000u}) {
    std::uint32_t next = 0;
    for (std::uint32_t tile = 0; tile < tile_count(elements); ++tile) {
      const TileExtent extent = tile_extent(elements, tile);
      EXPECT_EQ(extent.first, next);
      EXPECT_EQ(extent.count, std::min(kTile, elements - next));
      next += extent.count;
    }
    EXPECT_EQ(next, elements);
  }
}

std::vector<std::byte> some_bytes(std::size_t bytes) {
  std::vector<std::byte> plane(bytes);
  for (std::size_t i = 0; i < bytes; ++i) plane[i] = static_cast<std::byte>(i * 7 + i / 256);
  return plane;
}

TEST(PlaneChecksum, IsTheHashOfItsTilesHashesInWhateverOrderTheyWereTaken) {
  constexpr std::uint32_t kElements = 2 * kTile + 512;
  const auto plane = some_bytes(kElements * 2);
  std::vector<std::uint64_t> hashes(tile_count(kElements));
  for (const std::uint32_t tile : {2u, 0u, 1u}) {
    const TileExtent extent = tile_extent(kElements, tile);
    hashes[tile] = kernels::hash_bytes(&plane[extent.first * 2], extent.count * 2);
  }
  EXPECT_EQ(plane_checksum(plane.data(), kElements, {.dtype = DType::kBF16}), combine_tiles(hashes));
  EXPECT_EQ(combine_tiles(hashes), kernels::hash_bytes(hashes.data(), hashes.size() * 8));
}

TEST(PlaneChecksum, SeesEveryBytePaddingExcepted) {
  constexpr std::uint32_t kElements = kTile + 256;
  auto plane = some_bytes(kElements * 4 + 100);
  const std::uint64_t before = plane_checksum(plane.data(), kElements, {.dtype = DType::kF32});
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{4 * kTile - 1}, std::size_t{4 * kTile}, std::size_t{4 * kElements - 1}}) {
    plane[at] ^= std::byte{1};
    EXPECT_NE(plane_checksum(plane.data(), kElements, {.dtype = DType::kF32}), before) << "byte " << at;
    plane[at] ^= std::byte{1};
  }
  plane[4 * kElements] ^= std::byte{1};
  EXPECT_EQ(plane_checksum(plane.data(), kElements, {.dtype = DType::kF32}), before);
}

TEST(PlaneChecksum, OfScalesHashesThoseOfATilesGranules) {
  constexpr std::uint32_t kElements = kTile + 512;
  const kernels::PlaneFormat scales{
      .plane = kernels::Plane::kScale1, .dtype = DType::kF32, .elements_per_value = 256};
  EXPECT_EQ(tile_bytes(kElements, 0, scales).first, 0u);
  EXPECT_EQ(tile_bytes(kElements, 0, scales).count, 64u * 4);
  EXPECT_EQ(tile_bytes(kElements, 1, scales).first, 64u * 4);
  EXPECT_EQ(tile_bytes(kElements, 1, scales).count, 2u * 4);
  auto plane = some_bytes(66 * 4 + 100);
  const std::vector<std::uint64_t> hashes = {kernels::hash_bytes(plane.data(), 64 * 4),
                                             kernels::hash_bytes(&plane[64 * 4], 2 * 4)};
  EXPECT_EQ(plane_checksum(plane.data(), kElements, scales), combine_tiles(hashes));
  for (const std::size_t at : {std::size_t{0}, std::size_t{64 * 4}, std::size_t{66 * 4 - 1}}) {
    plane[at] ^= std::byte{1};
    EXPECT_NE(plane_checksum(plane.data(), kElements, scales), combine_tiles(hashes)) << "byte " << at;
    plane[at] ^= std::byte{1};
  }
}

TEST(PlaneChecksum, SwappedTilesDiffer) {
  const std::vector<std::uint64_t> hashes = {1, 2};
  const std::vector<std::uint64_t> swapped = {2, 1};
  EXPECT_NE(combine_tiles(hashes), combine_tiles(swapped));
}

}  // namespace
}  // namespace sluice::store
