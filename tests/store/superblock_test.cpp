#include "store/superblock.hpp"

#include <gmock/gmock.h>

#include <initializer_list>
#include <string>

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
  superblock.keep_commits = 2;
  superblock.undo = Undo::kOff;
  superblock.chunk_elements = 1 << 20;
  superblock.grid_bytes = 16384;
  superblock.slots_offset = 16384 * 9;
  superblock.container_bytes = std::uint64_t{5} << 40;
  superblock.generation = 0x0102030405060708;
  superblock.parent_store_id = 0x8877665544332211;
  superblock.catalog_offset = 16384;
  superblock.catalog_bytes = 16384 * 2 - 5;
  superblock.catalog_checksum = 0x99aabbccddeeff00;
  superblock.places_offset = 16384 * 3;
  superblock.place_bytes = 16384 * 2;
  superblock.place_count = 3;
  superblock.committed = true;
  return superblock;
}

Superblock scratch() {
  Superblock superblock = sample();
  superblock.keep_commits = 0;
  superblock.slots_offset = 16384;
  superblock.catalog_offset = superblock.catalog_bytes = superblock.catalog_checksum = 0;
  superblock.places_offset = superblock.place_bytes = superblock.place_count = 0;
  superblock.parent_store_id = 0;
  superblock.committed = false;
  return superblock;
}

void put(SuperblockBytes& bytes, std::size_t offset, std::size_t width, std::uint64_t value) {
  for (std::size_t i = 0; i < width; ++i) bytes[offset + i] = static_cast<std::byte>(value >> (8 * i));
}

void seal(SuperblockBytes& bytes) { put(bytes, 504, 8, kernels::hash_bytes(bytes.data(), 504)); }

std::uint64_t number_at(const SuperblockBytes& bytes, std::size_t offset, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;)
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[offset + i]);
  return value;
}

TEST(Superblock, ComesBackAsItWas) {
  for (const Superblock& superblock : {sample(), scratch()}) {
    const auto decoded = decode(encode(superblock));
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(*decoded, superblock);
  }
}

TEST(Superblock, LiesAsTheFormatSays) {
  const SuperblockBytes bytes = encode(sample());
  EXPECT_EQ(number_at(bytes, 0, 8), 0x0a65636975'6c5389u);
  EXPECT_EQ(number_at(bytes, 8, 4), 3u);
  EXPECT_EQ(number_at(bytes, 12, 4), 512u);
  EXPECT_EQ(number_at(bytes, 16, 1), 0xa0u);
  EXPECT_EQ(number_at(bytes, 31, 1), 0xafu);
  EXPECT_EQ(number_at(bytes, 32, 8), 0x1122334455667788u);
  EXPECT_EQ(number_at(bytes, 40, 4), 3u);
  EXPECT_EQ(number_at(bytes, 44, 4), 8u);
  EXPECT_EQ(number_at(bytes, 48, 4), 1u);
  EXPECT_EQ(number_at(bytes, 52, 4), 2u);
  EXPECT_EQ(number_at(bytes, 56, 4), 2u);
  EXPECT_EQ(number_at(bytes, 60, 4), 0u);
  EXPECT_EQ(number_at(bytes, 64, 4), 1u << 20);
  EXPECT_EQ(number_at(bytes, 68, 4), 16384u);
  EXPECT_EQ(number_at(bytes, 72, 8), 16384u * 9);
  EXPECT_EQ(number_at(bytes, 80, 8), std::uint64_t{5} << 40);
  EXPECT_EQ(number_at(bytes, 88, 8), 0x0102030405060708u);
  EXPECT_EQ(number_at(bytes, 96, 8), 16384u);
  EXPECT_EQ(number_at(bytes, 104, 8), 16384u * 2 - 5);
  EXPECT_EQ(number_at(bytes, 112, 8), 0x99aabbccddeeff00u);
  EXPECT_EQ(number_at(bytes, 120, 8), 16384u * 3);
  EXPECT_EQ(number_at(bytes, 128, 8), 16384u * 2);
  EXPECT_EQ(number_at(bytes, 136, 4), 3u);
  EXPECT_EQ(number_at(bytes, 140, 4), 1u);
  EXPECT_EQ(number_at(bytes, 144, 8), 0x8877665544332211u);
  EXPECT_TRUE(is_blank(std::span(bytes).subspan(152, 352)));
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

TEST(Superblock, EveryTruncationIsRefused) {
  const SuperblockBytes bytes = encode(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Status status = decode(std::span(bytes).first(size)).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("truncated: " + std::to_string(size)));
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
}

TEST(Superblock, VersionOneIsAScratchStoreWhoseLaterFieldsAreZeros) {
  Superblock earlier = scratch();
  earlier.version = 1;
  earlier.generation = 0;
  SuperblockBytes bytes = encode(earlier);
  EXPECT_EQ(number_at(bytes, 8, 4), 1u);
  const auto decoded = decode(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, earlier);

  put(bytes, 56, 4, 1);  // one that keeps commits was never made
  seal(bytes);
  EXPECT_THAT(decode(bytes).status().message(), HasSubstr("contradicts itself: 0 places for 1 commits"));
}

TEST(Superblock, AStoreKeepsTheVersionThatItWasMadeWith) {
  Superblock earlier = sample();
  earlier.version = 2;
  const auto decoded = decode(encode(earlier));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, earlier);
  EXPECT_EQ(number_at(encode(*decoded), 8, 4), 2u);
}

struct Contradiction {
  std::size_t offset;
  std::size_t width;
  std::uint64_t value;
  const char* says;
};

void expect_refused(const Superblock& superblock, const Contradiction& one) {
  SuperblockBytes bytes = encode(superblock);
  put(bytes, one.offset, one.width, one.value);
  seal(bytes);
  const Status status = decode(bytes).status();
  EXPECT_EQ(status.code(), Code::kDataLoss) << one.offset;
  EXPECT_THAT(status.message(), HasSubstr("contradicts itself")) << one.offset;
  EXPECT_THAT(status.message(), HasSubstr(one.says)) << one.offset;
}

TEST(Superblock, FieldsThatContradictEachOtherAreRefusedUnderAGoodChecksum) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  for (const Contradiction& one : std::initializer_list<Contradiction>{
           {8, 4, 0, "version 0"},
           {12, 4, 511, "511 bytes"},
           {40, 4, 8, "rank 8 is outside its world of 8"},
           {44, 4, 0, "rank 3 is outside its world of 0"},
           {48, 4, 2, "drive 2 is not one of 2"},
           {56, 4, 3, "3 places for 3 commits"},
           {56, 4, 16, "3 places for 16 commits"},
           {56, 4, 0xffffffff, "3 places for 4294967295 commits"},
           {56, 4, 0, "keeps no commits"},
           {60, 4, 2, "undo = 2"},
           {64, 4, 0, "chunk_elements = 0"},
           {64, 4, 16383, "chunk_elements = 16383"},
           {64, 4, 1u << 31, "chunk_elements = 2147483648"},
           {68, 4, 0, "grid_bytes = 0"},
           {68, 4, 12288, "grid_bytes = 12288"},
           {68, 4, 1 << 21, "grid_bytes = 2097152"},
           {68, 4, 32768, "grid of 32768"},
           {72, 8, 0, "slots from 0 on"},
           {72, 8, 16384 * 9 + 512, "slots from 147968 on"},
           {72, 8, 16384 * 8, "do not lie before the slots at 131072"},
           {72, 8, 16384 * 2, "do not lie before the slots at 32768"},
           {80, 8, 16384 * 9 - 1, "147455 bytes in all"},
           {80, 8, std::uint64_t{1} << 63, "9223372036854775808 bytes in all"},
           {96, 8, 0, "bytes of catalog at 0"},
           {96, 8, 16384 + 512, "catalog at 16896"},
           {96, 8, 16384 * 4, "bytes of catalog at 65536"},
           {96, 8, kAll - 16383, "bytes of catalog at 18446744073709535232"},
           {104, 8, 0, "0 bytes of catalog"},
           {104, 8, 16384 * 2 + 1, "32769 bytes of catalog"},
           {104, 8, kAll - 16383, "18446744073709535232 bytes of catalog"},
           {120, 8, 16384 * 3 + 1, "places at 49153"},
           {120, 8, 16384 * 4, "bytes at 65536 do not lie before"},
           {120, 8, 0, "the places at 0"},
           {128, 8, 0, "places of 0 bytes"},
           {128, 8, 16384 * 2 + 512, "of 33280 bytes"},
           {128, 8, 16384 * 3, "places of 49152 bytes"},
           {128, 8, std::uint64_t{1} << 63, "places of 9223372036854775808 bytes"},
           {136, 4, 0, "0 places for 2 commits"},
           {136, 4, 4, "4 places for 2 commits"},
           {140, 4, 2, "committed = 2"},
           {144, 8, 0x1122334455667788, "1122334455667788 was made from itself"},
           {152, 1, 1, "not zeros"},
           {503, 1, 1, "not zeros"}}) {
    expect_refused(sample(), one);
  }
}

TEST(Superblock, ScratchStoreHasNoCatalogAndNoPlaces) {
  for (const std::size_t offset : {96, 104, 112, 120, 128, 136, 140, 144}) {
    expect_refused(scratch(), {offset, 1, 1, "keeps no commits"});
  }
}

TEST(Superblock, MostCommitsThatFitAreAccepted) {
  Superblock superblock = sample();
  superblock.keep_commits = kKeepCommitsMax;
  superblock.place_count = kKeepCommitsMax + 1;
  superblock.slots_offset = superblock.places_offset + superblock.place_bytes * superblock.place_count;
  EXPECT_TRUE(decode(encode(superblock)).ok()) << decode(encode(superblock)).status().to_string();
  superblock.keep_commits = kKeepCommitsMax + 1;
  superblock.place_count = kKeepCommitsMax + 2;
  superblock.slots_offset = superblock.places_offset + superblock.place_bytes * superblock.place_count;
  EXPECT_THAT(decode(encode(superblock)).status().message(), HasSubstr("may keep up to 15"));
}

TEST(Superblock, BlankMeansNothingWasWritten) {
  EXPECT_TRUE(is_blank({}));
  EXPECT_TRUE(is_blank(SuperblockBytes{}));
  EXPECT_FALSE(is_blank(encode(sample())));
}

}  // namespace
}  // namespace sluice::store
