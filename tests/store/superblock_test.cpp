#include "store/superblock.hpp"

#include <gmock/gmock.h>

#include "kernels/tile_hash.hpp"

namespace sluice::store {
namespace {

using testing::HasSubstr;

Superblock sample() {
  Superblock superblock;
  for (std::size_t i = 0; i < 16; ++i) superblock.volume_id[i] = static_cast<std::byte>(0xa0 + i);
  superblock.store_id = 0x1122334455667788;
  superblock.rank = 3;
  superblock.world = 8;
  superblock.drive = 1;
  superblock.drives = 2;
  superblock.keep_commits = 1;
  superblock.undo = Undo::kOff;
  superblock.chunk_elements = 1 << 20;
  superblock.grid_bytes = 16384;
  superblock.slots_offset = 16384;
  superblock.container_bytes = std::uint64_t{5} << 40;
  return superblock;
}

void seal(SuperblockBytes& bytes) {
  const std::uint64_t checksum = kernels::hash_bytes(bytes.data(), 504);
  for (std::size_t i = 0; i < 8; ++i) bytes[504 + i] = static_cast<std::byte>(checksum >> (8 * i));
}

std::uint64_t number_at(const SuperblockBytes& bytes, std::size_t offset, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;)
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[offset + i]);
  return value;
}

TEST(Superblock, ComesBackAsItWas) {
  const auto decoded = decode(encode(sample()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, sample());
}

TEST(Superblock, LiesAsTheFormatSays) {
  const SuperblockBytes bytes = encode(sample());
  EXPECT_EQ(number_at(bytes, 0, 8), 0x0a65636975'6c5389u);
  EXPECT_EQ(number_at(bytes, 8, 4), 1u);
  EXPECT_EQ(number_at(bytes, 12, 4), 512u);
  EXPECT_EQ(number_at(bytes, 16, 1), 0xa0u);
  EXPECT_EQ(number_at(bytes, 31, 1), 0xafu);
  EXPECT_EQ(number_at(bytes, 32, 8), 0x1122334455667788u);
  EXPECT_EQ(number_at(bytes, 40, 4), 3u);
  EXPECT_EQ(number_at(bytes, 44, 4), 8u);
  EXPECT_EQ(number_at(bytes, 48, 4), 1u);
  EXPECT_EQ(number_at(bytes, 52, 4), 2u);
  EXPECT_EQ(number_at(bytes, 56, 4), 1u);
  EXPECT_EQ(number_at(bytes, 60, 4), 0u);
  EXPECT_EQ(number_at(bytes, 64, 4), 1u << 20);
  EXPECT_EQ(number_at(bytes, 68, 4), 16384u);
  EXPECT_EQ(number_at(bytes, 72, 8), 16384u);
  EXPECT_EQ(number_at(bytes, 80, 8), std::uint64_t{5} << 40);
  EXPECT_EQ(number_at(bytes, 504, 8), kernels::hash_bytes(bytes.data(), 504));
}

TEST(Superblock, EveryFlippedBitIsRefused) {
  const SuperblockBytes bytes = encode(sample());
  for (std::size_t bit = 0; bit < kSuperblockBytes * 8; ++bit) {
    SuperblockBytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(decode(flipped).ok()) << "bit " << bit;
  }
}

TEST(Superblock, RefusalsSayWhatWasFound) {
  SuperblockBytes foreign = encode(sample());
  foreign[0] = std::byte{'E'};
  EXPECT_EQ(decode(foreign).status().code(), Code::kDataLoss);
  EXPECT_THAT(decode(foreign).status().message(), HasSubstr("not a Sluice store"));

  SuperblockBytes newer = encode(sample());
  newer[8] = std::byte{9};  // its checksum may be somewhere else
  EXPECT_EQ(decode(newer).status().code(), Code::kUnimplemented);
  EXPECT_THAT(decode(newer).status().message(), HasSubstr("format version 9"));

  SuperblockBytes damaged = encode(sample());
  damaged[100] = std::byte{1};
  EXPECT_EQ(decode(damaged).status().code(), Code::kDataLoss);
  EXPECT_THAT(decode(damaged).status().message(), HasSubstr("checksum"));

  const SuperblockBytes whole = encode(sample());
  EXPECT_EQ(decode(std::span(whole).first(511)).status().code(), Code::kDataLoss);
  EXPECT_THAT(decode(std::span(whole).first(511)).status().message(), HasSubstr("truncated"));
}

TEST(Superblock, FieldsThatContradictEachOtherAreRefusedUnderAGoodChecksum) {
  for (const std::size_t offset :
       {40, 48, 60, 64 + 2, 68, 72, 85}) {  // rank, drive, undo, chunk, grid, slots, container
    SuperblockBytes bytes = encode(sample());
    bytes[offset] = offset == 66 || offset == 85 ? std::byte{0} : std::byte{99};
    seal(bytes);
    EXPECT_THAT(decode(bytes).status().message(), HasSubstr("contradicts")) << "offset " << offset;
  }
}

TEST(Superblock, BlankMeansNothingWasWritten) {
  EXPECT_TRUE(is_blank({}));
  EXPECT_TRUE(is_blank(SuperblockBytes{}));
  EXPECT_FALSE(is_blank(encode(sample())));
}

}  // namespace
}  // namespace sluice::store
