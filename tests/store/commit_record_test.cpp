#include "store/commit_record.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "kernels/tile_hash.hpp"
#include "stored_world.hpp"

namespace sluice::store {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kGroups = 112;
constexpr std::size_t kStepCounts = kGroups + 2 * 72 + 4;
constexpr std::size_t kChunks = kStepCounts + 3 * 8;
constexpr std::size_t kUserBytes = kChunks + 2 * 44;
constexpr std::size_t kChecksum = kUserBytes + 5;

/// Four checksums a chunk, as many as the widest of its classes has planes.
CommitRecord sample() {
  CommitRecord record;
  for (std::size_t i = 0; i < 16; ++i) record.volume_id[i] = static_cast<std::byte>(0xb0 + i);
  record.store_id = 0x1122334455667788;
  record.rank = 2;
  record.world = 3;
  record.number = 41;
  record.steps = 1000;
  record.seed = 0xfedcba9876543210;
  record.groups = {{"main", AdamW{.lr = 0.5, .beta1 = 0.25, .beta2 = 0.75, .eps = 1e-6, .weight_decay = 0}},
                   {"", AdamW{}}};
  record.step_counts = {1000, 0, ~std::uint64_t{0}};
  record.chunks = {{{0, 65536}, {1, 2, 3, 4}}, {{1, std::uint64_t{9} << 40}, {5, 0, 0, 0}}};
  for (const char letter : {'h', 'e', 'l', 'l', 'o'}) record.user_bytes.push_back(std::byte(letter));
  return record;
}

Bytes encoded(const CommitRecord& record) {
  Bytes bytes(4096);
  bytes.resize(encode(record, bytes));
  return bytes;
}

std::uint64_t number_at(const Bytes& bytes, std::size_t offset, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;)
    value = value << 8 | std::to_integer<std::uint64_t>(bytes.at(offset + i));
  return value;
}

void put(Bytes& bytes, std::size_t offset, std::size_t width, std::uint64_t value) {
  for (std::size_t i = 0; i < width; ++i) bytes.at(offset + i) = static_cast<std::byte>(value >> (8 * i));
}

void seal(Bytes& bytes) {
  put(bytes, bytes.size() - 8, 8, kernels::hash_bytes(bytes.data(), bytes.size() - 8));
}

/// A record with one number replaced under a good checksum.
Status refusal(std::size_t offset, std::size_t width, std::uint64_t value) {
  Bytes bytes = encoded(sample());
  put(bytes, offset, width, value);
  seal(bytes);
  return decode_commit(bytes).status();
}

TEST(CommitRecord, ComesBackAsItWas) {
  const auto decoded = decode_commit(encoded(sample()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->volume_id, sample().volume_id);
  EXPECT_EQ(decoded->seed, sample().seed);
  EXPECT_EQ(decoded->groups[0].name, "main");
  EXPECT_EQ(std::get<AdamW>(decoded->groups[0].optimizer).eps, 1e-6);
  EXPECT_EQ(decoded->step_counts, sample().step_counts);
  EXPECT_EQ(decoded->chunks[1].place.offset, std::uint64_t{9} << 40);
  EXPECT_EQ(decoded->chunks[0].checksums, sample().chunks[0].checksums);
  EXPECT_EQ(decoded->user_bytes, sample().user_bytes);
  EXPECT_EQ(encoded(*decoded), encoded(sample()));
}

TEST(CommitRecord, LiesAsTheFormatSays) {
  const Bytes bytes = encoded(sample());
  EXPECT_EQ(number_at(bytes, 0, 8), 0x0a74696d6d6f4389u);
  EXPECT_EQ(number_at(bytes, 8, 4), 2u);
  EXPECT_EQ(number_at(bytes, 12, 4), 4u);
  EXPECT_EQ(number_at(bytes, 16, 8), kChecksum + 8);
  EXPECT_EQ(number_at(bytes, 24, 1), 0xb0u);
  EXPECT_EQ(number_at(bytes, 39, 1), 0xbfu);
  EXPECT_EQ(number_at(bytes, 40, 8), 0x1122334455667788u);
  EXPECT_EQ(number_at(bytes, 48, 4), 2u);
  EXPECT_EQ(number_at(bytes, 52, 4), 3u);
  EXPECT_EQ(number_at(bytes, 56, 8), 41u);
  EXPECT_EQ(number_at(bytes, 64, 8), 1000u);
  EXPECT_EQ(number_at(bytes, 72, 8), 0xfedcba9876543210u);
  EXPECT_EQ(number_at(bytes, 80, 4), 2u);   // groups
  EXPECT_EQ(number_at(bytes, 84, 4), 0u);   // reserved
  EXPECT_EQ(number_at(bytes, 88, 8), 3u);   // step counts
  EXPECT_EQ(number_at(bytes, 96, 8), 2u);   // chunks
  EXPECT_EQ(number_at(bytes, 104, 8), 5u);  // user bytes
  EXPECT_EQ(number_at(bytes, kGroups, 4), 4u);
  EXPECT_EQ(number_at(bytes, kGroups + 4, 4), 0u);                    // AdamW
  EXPECT_EQ(number_at(bytes, kGroups + 8, 8), 0x3fe0000000000000u);   // lr 0.5
  EXPECT_EQ(number_at(bytes, kGroups + 16, 8), 0x3fd0000000000000u);  // beta1 0.25
  EXPECT_EQ(number_at(bytes, kGroups + 24, 8), 0x3fe8000000000000u);  // beta2 0.75
  EXPECT_EQ(number_at(bytes, kGroups + 40, 8), 0u);                   // weight_decay 0
  EXPECT_EQ(number_at(bytes, kGroups + 64, 8), 0u);                   // the last of eight numbers
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()) + kGroups + 72, 4), "main");
  EXPECT_EQ(number_at(bytes, kStepCounts, 8), 1000u);
  EXPECT_EQ(number_at(bytes, kStepCounts + 16, 8), ~std::uint64_t{0});
  EXPECT_EQ(number_at(bytes, kChunks, 4), 0u);
  EXPECT_EQ(number_at(bytes, kChunks + 4, 8), 65536u);
  EXPECT_EQ(number_at(bytes, kChunks + 12, 8), 1u);
  EXPECT_EQ(number_at(bytes, kChunks + 36, 8), 4u);
  EXPECT_EQ(number_at(bytes, kChunks + 44, 4), 1u);
  EXPECT_EQ(number_at(bytes, kUserBytes, 1), std::uint64_t{'h'});
  EXPECT_EQ(number_at(bytes, kChecksum, 8), kernels::hash_bytes(bytes.data(), kChecksum));
  EXPECT_EQ(bytes.size(), kChecksum + 8);
}

TEST(CommitRecord, HasTheBytesThatItsSizesGive) {
  const std::uint64_t bytes = commit_record_bytes(
      {.chunks = 2, .planes = 4, .parameters = 3, .groups = 2, .group_name_bytes = 4, .user_bytes = 5});
  EXPECT_EQ(bytes, encoded(sample()).size());
  EXPECT_EQ(commit_record_bytes({.chunks = 1ull << 60}), ~std::uint64_t{0});
  EXPECT_EQ(commit_record_bytes({.chunks = 1ull << 60, .user_bytes = 200}), ~std::uint64_t{0});
  EXPECT_EQ(commit_record_bytes({.user_bytes = ~std::uint64_t{0}}), ~std::uint64_t{0});
}

TEST(CommitRecord, HasAsManyChecksumsAChunkAsAnyOfThemUses) {
  for (std::size_t planes = 0; planes <= kMaxPlanes; ++planes) {
    CommitRecord record = sample();
    for (CommittedChunk& chunk : record.chunks) chunk.checksums = {};
    // A plane may hash to 0: those before it count all the same.
    if (planes > 0) record.chunks[1].checksums[planes - 1] = 0x77;
    EXPECT_EQ(size_of(record).planes, planes);
    const Bytes bytes = encoded(record);
    EXPECT_EQ(bytes.size(), encoded(sample()).size() + 2 * 8 * planes - 2 * 8 * 4);
    EXPECT_EQ(number_at(bytes, 12, 4), planes);
    const auto decoded = decode_commit(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(decoded->chunks[0].checksums, record.chunks[0].checksums);
    EXPECT_EQ(decoded->chunks[1].checksums, record.chunks[1].checksums);
    EXPECT_EQ(decoded->chunks[1].place.offset, record.chunks[1].place.offset);
    EXPECT_EQ(decoded->user_bytes, record.user_bytes);
  }
}

/// The bytes of sample() as the first version of the format had them, by hexadecimal digit pairs.
constexpr std::string_view kVersion1 =
    "89436f6d6d69740a01000000040000008101000000000000b0b1b2b3b4b5b6b7b8b9babbbcbdbebf8877665544332211"
    "02000000030000002900000000000000e8030000000000001032547698badcfe02000000000000000300000000000000"
    "020000000000000005000000000000000400000000000000000000000000e03f000000000000d03f000000000000e83f"
    "8dedb5a0f7c6b03e00000000000000000000000000000000000000000000000000000000000000006d61696e00000000"
    "00000000fca9f1d24d62503fcdccccccccccec3f2b8716d9cef7ef3f3a8c30e28e79453e7b14ae47e17a843f00000000"
    "0000000000000000000000000000000000000000e8030000000000000000000000000000ffffffffffffffff00000000"
    "000001000000000001000000000000000200000000000000030000000000000004000000000000000100000000000000"
    "00090000050000000000000000000000000000000000000000000000000000000000000068656c6c6fe3b49ee3cd802b"
    "8c";

TEST(CommitRecord, OfTheFirstVersionIsReadAsItWasWritten) {
  Bytes bytes;
  for (std::size_t at = 0; at < kVersion1.size(); at += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(kVersion1.substr(at, 2)), nullptr, 16)));
  ASSERT_EQ(number_at(bytes, 8, 4), 1u);
  const auto decoded = decode_commit(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->version, 1u);
  EXPECT_EQ(commit_record_bytes(size_of(*decoded)), bytes.size());
  EXPECT_EQ(encoded(*decoded), bytes);
  CommitRecord renewed = *decoded;
  renewed.version = kCommitRecordVersion;
  EXPECT_EQ(encoded(renewed), encoded(sample()));
  for (const std::uint64_t planes : {0, 3, 5, 6}) {
    put(bytes, 12, 4, planes);
    seal(bytes);
    EXPECT_EQ(decode_commit(bytes).status().code(), Code::kDataLoss) << planes;
    EXPECT_THAT(decode_commit(bytes).status().message(),
                HasSubstr("version 1 with " + std::to_string(planes) + " checksums a chunk"));
  }
}

TEST(CommitRecord, OfTheFirstVersionKeepsItsFourChecksumsWhereFewerAreUsed) {
  CommitRecord record = sample();
  record.version = 1;
  for (CommittedChunk& chunk : record.chunks) chunk.checksums = {7};
  const Bytes bytes = encoded(record);
  EXPECT_EQ(number_at(bytes, 12, 4), 4u);
  const auto decoded = decode_commit(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(encoded(*decoded), bytes);
}

TEST(CommitRecord, WithANumberThatItsOptimizerCannotHoldIsRefused) {
  CommitRecord record = sample();
  record.groups[0].optimizer = Sgd{.momentum = 0.5, .nesterov = true};
  constexpr std::size_t kNesterov = kGroups + 8 + 4 * 8;
  for (const double strange : {0.5, -0.0, 2.0, std::nan("")}) {
    Bytes bytes = encoded(record);
    ASSERT_EQ(number_at(bytes, kNesterov, 8), std::bit_cast<std::uint64_t>(1.0));
    put(bytes, kNesterov, 8, std::bit_cast<std::uint64_t>(strange));
    seal(bytes);
    const Status status = decode_commit(bytes).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << strange;
    EXPECT_THAT(status.message(), HasSubstr("nesterov of optimizer sgd")) << strange;
  }
}

TEST(CommitRecord, EveryOptimizerComesBackWithItsNumbers) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CommitRecord record = sample();
    Optimizer& optimizer = record.groups[0].optimizer;
    optimizer = kind.defaults;
    double value = 0.0625;
    for (const OptimizerNumber& number : kind.numbers)
      number.set(optimizer, number.name == "nesterov" ? 1 : value *= 1.5);
    const auto decoded = decode_commit(encoded(record));
    ASSERT_TRUE(decoded.ok()) << kind.name << ": " << decoded.status().to_string();
    ASSERT_EQ(decoded->groups[0].optimizer.index(), optimizer.index()) << kind.name;
    for (const OptimizerNumber& number : kind.numbers)
      EXPECT_EQ(number.get(decoded->groups[0].optimizer), number.get(optimizer)) << kind.name << number.name;
  }
}

TEST(CommitRecord, NumbersOfAnOptimizerKeepTheirBits) {
  CommitRecord record = sample();
  const double strange[] = {-0.0, std::numeric_limits<double>::infinity(), std::nan("7"), 5e-324, 1.0 / 3};
  record.groups[0].optimizer = AdamW{strange[0], strange[1], strange[2], strange[3], strange[4]};
  const auto decoded = decode_commit(encoded(record));  // a frozen group's are never looked at
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(encoded(*decoded), encoded(record));
}

TEST(CommitRecord, WhatFollowsItInItsPlaceIsNotLookedAt) {
  Bytes bytes = encoded(sample());
  bytes.resize(8192, std::byte{0xee});
  EXPECT_TRUE(decode_commit(bytes).ok());
}

TEST(CommitRecord, EveryTruncationIsRefused) {
  const Bytes bytes = encoded(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_commit(std::span(bytes).first(size)).status().code(), Code::kDataLoss) << size;
  }
}

TEST(CommitRecord, EveryTornEndIsRefused) {
  Bytes before(4096, std::byte{0x5a});
  const Bytes bytes = encoded(sample());
  for (std::size_t written = 0; written < bytes.size(); ++written) {
    Bytes place = before;
    std::copy_n(bytes.begin(), written, place.begin());
    EXPECT_EQ(decode_commit(place).status().code(), Code::kDataLoss) << written;
  }
}

TEST(CommitRecord, EveryFlippedBitIsDamage) {
  const Bytes bytes = encoded(sample());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_EQ(decode_commit(flipped).status().code(), Code::kDataLoss) << "bit " << bit;
  }
}

TEST(CommitRecord, ErasedPlaceIsNoRecord) {
  Bytes place = encoded(sample());
  place.resize(8192, std::byte{0xee});
  std::fill_n(place.begin(), kErasedBytes, std::byte{0});
  EXPECT_EQ(decode_commit(place).status().code(), Code::kNotFound);
  place[kErasedBytes - 1] = std::byte{1};
  EXPECT_EQ(decode_commit(place).status().code(), Code::kDataLoss);
  EXPECT_EQ(decode_commit(Bytes(kErasedBytes - 1)).status().code(), Code::kDataLoss)
      << "no place is so small";
}

TEST(CommitRecord, NewerFormatIsNamedIfItIsWhole) {
  EXPECT_EQ(refusal(8, 4, 3).code(), Code::kUnimplemented);
  EXPECT_THAT(refusal(8, 4, 3).message(), HasSubstr("format version 3"));
  EXPECT_EQ(refusal(kGroups + 4, 4, 9).code(), Code::kUnimplemented);
  EXPECT_THAT(refusal(kGroups + 4, 4, 9).message(), HasSubstr("group \"main\": optimizer 9"));
}

TEST(CommitRecord, FieldsThatContradictEachOtherAreRefusedUnderAGoodChecksum) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  const struct {
    std::size_t offset;
    std::size_t width;
    std::uint64_t value;
    const char* says;
  } cases[] = {{8, 4, 0, "version 0"},
               {12, 4, 7, "with 7 checksums a chunk"},
               {12, 4, 5, "2 chunks"},
               {12, 4, 3, "2 chunks"},
               {kChunks + 36, 8, 0, "4 checksums a chunk, the last of them 0 in each"},
               {12, 4, 0xffffffff, "with 4294967295 checksums a chunk"},
               {16, 8, kChecksum + 9, "it says it has"},
               {16, 8, 119, "accepted: 120 to"},
               {16, 8, kAll, "it says it has 18446744073709551615"},
               {48, 4, 3, "rank 3 of 3"},
               {52, 4, 0, "rank 2 of 0"},
               {56, 8, 0, "commit 0"},
               {84, 4, 1, "reserved 1"},
               {80, 4, 1, "1 groups"},
               {80, 4, 3, "of optimizer adamw"},
               {80, 4, 0xffffffff, "4294967295 groups"},
               {88, 8, 2, "2 step counts"},
               {88, 8, 4, "4 step counts"},
               {88, 8, kAll, "18446744073709551615 step counts"},
               {88, 8, (kAll >> 3) + 1, "2305843009213693952 step counts"},
               {96, 8, 1, "1 chunks"},
               {96, 8, 3, "3 chunks"},
               {96, 8, kAll / 44 + 1, "chunks"},
               {104, 8, 4, "4 user bytes"},
               {104, 8, 6, "6 user bytes"},
               {104, 8, kAll, "18446744073709551615 user bytes"},
               {kGroups, 4, 65537, "a group's name of 65537 bytes"},
               {kGroups, 4, 65536, "2 groups"},
               {kGroups, 4, 3, ""},
               {kGroups + 48, 8, 1, "number 5 of optimizer adamw"},
               {kGroups + 64, 8, std::uint64_t{1} << 63, "number 7 of optimizer adamw"}};
  for (const auto& one : cases) {
    const Status status = refusal(one.offset, one.width, one.value);
    EXPECT_FALSE(status.ok()) << "offset " << one.offset;
    EXPECT_THAT(status.message(), HasSubstr(one.says)) << "offset " << one.offset;
  }
}

struct Strangeness {
  std::function<void(CommitRecord&)> make;
  const char* says;
};

TEST(CommitRecord, BelongsToItsStoreOrIsRefused) {
  const Catalog catalog = catalog_of(
      {{.name = "a", .shape = {20000}}, {.name = "b", .shape = {300}, .group = 1, .policy = Policy::kFp32}},
      {}, {.drives = 2, .slots_offset = 65536});
  Superblock superblock{.store_id = 7, .rank = 1, .world = 2, .drives = 2};
  superblock.grid_bytes = 4096;
  superblock.slots_offset = 65536;
  CommitRecord record;
  record.store_id = 7;
  record.rank = 1;
  record.world = 2;
  record.number = 5;
  record.groups.resize(2);
  record.step_counts.resize(2);
  record.chunks = {{{0, 65536}, {}}, {{1, 69632}, {}}, {{0, std::uint64_t{1} << 40}, {}}};
  EXPECT_TRUE(check(record, superblock, catalog).ok()) << check(record, superblock, catalog).to_string();

  for (const Strangeness& one : std::vector<Strangeness>{
           {[](CommitRecord& r) { r.volume_id[3] = std::byte{1}; }, "another volume"},
           {[](CommitRecord& r) { r.store_id = 8; }, "store 0000000000000008"},
           {[](CommitRecord& r) { r.rank = 0; }, "rank 0 of 2"},
           {[](CommitRecord& r) { r.world = 3; }, "rank 1 of 3"},
           {[](CommitRecord& r) { r.groups.pop_back(); }, "1 groups"},
           {[](CommitRecord& r) { r.step_counts.pop_back(); }, "1 step counts"},
           {[](CommitRecord& r) { r.chunks.pop_back(); }, "2 chunks"},
           {[](CommitRecord& r) { r.chunks[1].place.drive = 2; }, "chunk 1 on drive 2"},
           {[](CommitRecord& r) { r.chunks[2].place.drive = 1; }, "chunk 2 on drive 1"},
           {[](CommitRecord& r) { r.chunks[1].place.offset += 512; }, "at 70144"},
           {[](CommitRecord& r) { r.chunks[1].place.offset = 61440; }, "from 65536 to"},
           {[](CommitRecord& r) { r.chunks[1].place.offset = (1ull << 63) - 4096; },
            "at 9223372036854771712"},
           {[](CommitRecord& r) { r.chunks[1].place.offset = -4096ull; }, "at 18446744073709547520"}}) {
    CommitRecord strange = record;
    one.make(strange);
    EXPECT_EQ(check(strange, superblock, catalog).code(), Code::kDataLoss);
    EXPECT_THAT(check(strange, superblock, catalog).message(), HasSubstr(one.says));
  }

  record.chunks[1].place.drive = 0;
  EXPECT_TRUE(check(record, superblock, catalog).ok()) << "on any drive with slots of its class";
  superblock.version = 2;
  const Status status = check(record, superblock, catalog);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("chunk 1 on drive 0"));
}

}  // namespace
}  // namespace sluice::store
