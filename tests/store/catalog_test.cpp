#include "store/catalog.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "stored_world.hpp"

namespace sluice::store {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSlotsOffset = 65536;

/// Three classes on two drives: bf16 with two chunks, fp32, frozen; a scalar, an empty one, two aliases.
Catalog sample() {
  return catalog_of(
      {{.name = "embedding", .shape = {100, 200}, .group = 0},
       {.name = "scale", .shape = {}, .group = 1, .policy = Policy::kFp32, .rank = 1, .world = 2},
       {.name = "frozen", .shape = {3, 5}, .group = 2, .policy = Policy::kFrozen, .frozen_dtype = DType::kU8},
       {.name = "empty", .shape = {7, 0}, .group = 0},
       {.name = "bias", .shape = {300}, .group = 1, .policy = Policy::kFp32, .rank = 1, .world = 2}},
      {{"head", 0}, {"tail", 2}}, {.drives = 2, .slots_offset = kSlotsOffset, .slots_per_chunk = 3});
}

Superblock superblock_of(const Catalog& catalog, std::uint32_t drive) {
  Superblock superblock{.drive = drive, .drives = 2, .chunk_elements = 16384, .grid_bytes = 4096};
  superblock.slots_offset = superblock.container_bytes = kSlotsOffset;
  for (const SlotRun& run : catalog.runs)
    if (run.drive == drive) superblock.container_bytes = run.first_offset + run.slots * run.slot_bytes;
  return superblock;
}

std::uint64_t number_at(const std::vector<std::byte>& bytes, std::size_t offset, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;)
    value = value << 8 | std::to_integer<std::uint64_t>(bytes.at(offset + i));
  return value;
}

void put(std::vector<std::byte>& bytes, std::size_t offset, std::size_t width, std::uint64_t value) {
  for (std::size_t i = 0; i < width; ++i) bytes.at(offset + i) = static_cast<std::byte>(value >> (8 * i));
}

std::string text_at(const std::vector<std::byte>& bytes, std::size_t offset, std::size_t count) {
  return {reinterpret_cast<const char*>(bytes.data()) + offset, count};
}

TEST(Catalog, ComesBackAsItWas) {
  for (const Catalog& catalog : {sample(), Catalog{}}) {
    const auto decoded = decode_catalog(encode(catalog));
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(*decoded, catalog);
  }
}

TEST(Catalog, LiesAsTheFormatSays) {
  const std::vector<std::byte> bytes = encode(sample());
  EXPECT_EQ(number_at(bytes, 0, 4), 5u);            // parameters
  EXPECT_EQ(number_at(bytes, 4, 4), 2u);            // aliases
  EXPECT_EQ(number_at(bytes, 8, 4), 4u);            // chunks
  EXPECT_EQ(number_at(bytes, 12, 4), 4u);           // runs
  EXPECT_EQ(number_at(bytes, 16, 4), 9u);           // bytes of "embedding"
  EXPECT_EQ(number_at(bytes, 20, 4), 2u);           // dimensions
  EXPECT_EQ(number_at(bytes, 24, 4), 0u);           // group
  EXPECT_EQ(number_at(bytes, 28, 4), 0u);           // rank
  EXPECT_EQ(number_at(bytes, 32, 4), 1u);           // world
  EXPECT_EQ(number_at(bytes, 36, 4), 0x00060000u);  // bf16_split, AdamW, BF16, fp32 gradients
  EXPECT_EQ(number_at(bytes, 40, 8), 100u);
  EXPECT_EQ(number_at(bytes, 48, 8), 200u);
  EXPECT_EQ(text_at(bytes, 56, 9), "embedding");
  EXPECT_EQ(number_at(bytes, 65, 4), 5u);           // bytes of "scale"
  EXPECT_EQ(number_at(bytes, 69, 4), 0u);           // a scalar has no dimensions
  EXPECT_EQ(number_at(bytes, 77, 4), 1u);           // rank
  EXPECT_EQ(number_at(bytes, 81, 4), 2u);           // world
  EXPECT_EQ(number_at(bytes, 85, 4), 0x00060001u);  // fp32
  EXPECT_EQ(text_at(bytes, 89, 5), "scale");
  EXPECT_EQ(number_at(bytes, 114, 4), 0x00010002u);  // frozen, U8
  const std::size_t aliases = bytes.size() - 4 * 32 - 4 * 12 - 2 * (8 + 4);
  EXPECT_EQ(number_at(bytes, aliases, 4), 4u);
  EXPECT_EQ(number_at(bytes, aliases + 4, 4), 0u);
  EXPECT_EQ(text_at(bytes, aliases + 8, 4), "head");
  EXPECT_EQ(number_at(bytes, aliases + 16, 4), 2u);
  EXPECT_EQ(text_at(bytes, aliases + 20, 4), "tail");
  const std::size_t chunks = aliases + 24;  // class, elements, drive
  EXPECT_EQ(number_at(bytes, chunks, 4), 0u);
  EXPECT_EQ(number_at(bytes, chunks + 4, 4), 16384u);
  EXPECT_EQ(number_at(bytes, chunks + 8, 4), 0u);
  EXPECT_EQ(number_at(bytes, chunks + 12, 4), 0u);
  EXPECT_EQ(number_at(bytes, chunks + 16, 4), 20224u - 16384);
  EXPECT_EQ(number_at(bytes, chunks + 20, 4), 1u);
  const std::size_t runs = chunks + 4 * 12;  // class, drive, first offset, slot bytes, slots
  EXPECT_EQ(number_at(bytes, runs, 4), 0u);
  EXPECT_EQ(number_at(bytes, runs + 4, 4), 0u);
  EXPECT_EQ(number_at(bytes, runs + 8, 8), kSlotsOffset);
  EXPECT_EQ(number_at(bytes, runs + 16, 8), 16384u * 12);
  EXPECT_EQ(number_at(bytes, runs + 24, 8), 3u);
  EXPECT_EQ(runs + 4 * 32, bytes.size());
}

TEST(Catalog, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = encode(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_catalog(std::span(bytes).first(size)).status().code(), Code::kDataLoss) << size;
  }
}

TEST(Catalog, BytesBehindItAreRefused) {
  std::vector<std::byte> bytes = encode(sample());
  bytes.push_back(std::byte{0});
  EXPECT_THAT(decode_catalog(bytes).status().message(), HasSubstr("its tables end after"));
}

TEST(Catalog, FlippedBitsDecodeToWhatTheySayOrAreRefused) {
  const std::vector<std::byte> bytes = encode(sample());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const auto decoded = decode_catalog(flipped);
    if (decoded.ok()) {
      EXPECT_EQ(encode(*decoded), flipped) << "bit " << bit;
    }
  }
}

TEST(Catalog, CountsThatTheBytesCannotHoldAreRefusedBeforeAnythingIsAllocated) {
  for (const std::size_t offset : {0, 4, 8, 12, 16, 20}) {
    std::vector<std::byte> bytes = encode(sample());
    put(bytes, offset, 4, 0xffffffff);
    EXPECT_EQ(decode_catalog(bytes).status().code(), Code::kDataLoss) << offset;
  }
  std::vector<std::byte> bytes(16);
  for (const std::size_t offset : {0, 4, 8, 12}) put(bytes, offset, 4, 0xffffffff);
  EXPECT_THAT(decode_catalog(bytes).status().message(), HasSubstr("cannot hold 4294967295 parameters"));
}

struct Inconsistency {
  std::function<void(Catalog&)> make;
  const char* says;
};

TEST(Catalog, EachFieldThatContradictsAnotherIsRefused) {
  const std::vector<Inconsistency> cases = {
      {[](Catalog& c) { c.parameters[0].name.clear(); }, "a name of 0 bytes"},
      {[](Catalog& c) { c.parameters[0].name.assign(kNameBytesMax + 1, 'x'); }, "a name of 65537 bytes"},
      {[](Catalog& c) { c.parameters[0].name = "bias"; }, "two parameters are named \"bias\""},
      {[](Catalog& c) { c.aliases[0].name = "bias"; }, "two parameters are named \"bias\""},
      {[](Catalog& c) { c.aliases[0].name = "tail"; }, "two parameters are named \"tail\""},
      {[](Catalog& c) { c.aliases[1].parameter = 5; }, "\"tail\" is tied to parameter 5 of 5"},
      {[](Catalog& c) { c.parameters[0].shape[0] = -1; }, "shape holds -1"},
      {[](Catalog& c) {
         c.parameters[0].shape = {1ll << 62, 4};
       },
       "more than 2^63 elements"},
      {[](Catalog& c) {
         c.parameters[0].shape = {1ll << 62, 2};
       },
       "need chunks of"},
      {[](Catalog& c) { c.parameters[0].shape = {1000}; }, "need chunks of"},
      {[](Catalog& c) { c.parameters[1].rank = 2; }, "rank 2 is outside its world of 2"},
      {[](Catalog& c) { c.parameters[1].world = 0; }, "rank 1 is outside its world of 0"},
      {[](Catalog& c) { c.parameters[4].world = 3; }, "are of group 1 and differ"},
      {[](Catalog& c) { c.parameters[3].policy = Policy::kFp32; }, "are of group 0 and differ"},
      {[](Catalog& c) { c.parameters[3].gradient = GradientStorage::kBf16Once; },
       "are of group 0 and differ"},
      {[](Catalog& c) { c.parameters[3].frozen_dtype = DType::kF32; }, "are of group 0 and differ"},
      {[](Catalog& c) { c.parameters[3].group = 2; }, "are of group 2 and differ"},
      {[](Catalog& c) { std::swap(c.parameters[0], c.parameters[1]); }, "are not those of its parameters"},
      {[](Catalog& c) { c.chunks[0].class_index = 1; }, "are not those of its parameters"},
      {[](Catalog& c) { c.chunks[0].class_index = 9; }, "are not those of its parameters"},
      {[](Catalog& c) { c.chunks[0].elements -= 256; }, "need chunks of"},
      {[](Catalog& c) { c.chunks[0].elements -= 256, c.chunks[1].elements += 256; }, "are not those"},
      {[](Catalog& c) { c.chunks[3].elements = 0, c.chunks[1].elements += 256; }, "a chunk of 0 elements"},
      {[](Catalog& c) { c.chunks.pop_back(); }, "need chunks of"},
      {[](Catalog& c) { c.chunks.push_back(c.chunks.back()); }, "need chunks of"},
      {[](Catalog& c) { c.chunks[1].drive = 0; }, ""},  // as good as any: its slots are enough
      {[](Catalog& c) { c.runs[1].slot_bytes = 49152; },
       "chunk 0 has a record of 196608 bytes and slots of 49152"},
      {[](Catalog& c) { c.chunks[2].drive = 1; }, "1 chunks of class 1 on drive 1 and 0 slots"},
      {[](Catalog& c) { c.runs[0].class_index = 3; }, "there are 3 classes"},
      {[](Catalog& c) { c.runs[0].class_index = 1; }, "there are two such runs"},
      {[](Catalog& c) { c.runs[0].drive = 1; }, "there are two such runs"},
      {[](Catalog& c) { c.runs[0].drive = 5; }, "1 chunks of class 0 on drive 0 and 0 slots"},
      {[](Catalog& c) { c.runs[0].slots = 0; }, "0 of 196608 bytes"},
      {[](Catalog& c) { c.runs[0].slots = 1ull << 60; }, "within 2^63 - 1 bytes"},
      {[](Catalog& c) { c.runs[0].slots = 4; }, "overlap those of class 1"},
      {[](Catalog& c) { c.runs[0].slot_bytes = 0; }, "3 of 0 bytes"},
      {[](Catalog& c) { c.runs[0].slot_bytes = 196608 - 512; }, "chunk 0 has a record of 196608 bytes"},
      {[](Catalog& c) { c.runs[0].slot_bytes = 1ull << 62; }, "within 2^63 - 1 bytes"},
      {[](Catalog& c) { c.runs[0].first_offset = (1ull << 63) - 3 * 196608; }, "within 2^63 - 1 bytes"},
      {[](Catalog& c) { c.runs[2].first_offset = c.runs[0].first_offset; }, "overlap those of class"},
      {[](Catalog& c) { c.runs.clear(); }, "0 slots for them"},
  };
  for (const Inconsistency& one : cases) {
    Catalog catalog = sample();
    one.make(catalog);
    const Status status = decode_catalog(encode(catalog)).status();
    const bool accepted = std::string(one.says).empty();
    EXPECT_EQ(status.code(), accepted ? Code::kOk : Code::kDataLoss) << one.says << ": " << status.message();
    EXPECT_THAT(status.message(), HasSubstr(one.says));
    EXPECT_EQ(check(catalog).code(), accepted ? Code::kOk : Code::kInvalidArgument);
  }
}

TEST(Catalog, WhatThisBuildDoesNotHaveIsNamedByItsNumber) {
  const struct {
    std::size_t offset;
    const char* says;
  } cases[] = {{36, "policy 77"}, {37, "optimizer 77"}, {38, "dtype 77"}, {39, "gradient storage 77"}};
  for (const auto& one : cases) {
    std::vector<std::byte> bytes = encode(sample());
    put(bytes, one.offset, 1, 77);
    const Status status = decode_catalog(bytes).status();
    EXPECT_EQ(status.code(), Code::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr(one.says));
    EXPECT_THAT(status.message(), HasSubstr("\"embedding\""));
  }
}

TEST(Catalog, EveryPolicyAndOptimizerIsKnownUnlessTheyDoNotGoTogether) {
  for (std::uint8_t optimizer = 0; optimizer < optimizer_kinds().size(); ++optimizer)
    for (const Policy policy : policies()) {
      StoredParameter parameter{.name = "it", .shape = {300}, .policy = policy, .optimizer = optimizer};
      const bool together = validate(policy, optimizer_kinds()[optimizer].defaults).ok();
      Catalog catalog = catalog_of({parameter}, {}, {.slots_offset = kSlotsOffset});
      EXPECT_EQ(check(catalog).code(), together ? Code::kOk : Code::kUnimplemented) << policy_name(policy);
      const auto decoded = decode_catalog(encode(catalog));
      if (together) {
        ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
        EXPECT_EQ(*decoded, catalog);
      } else {
        EXPECT_THAT(decoded.status().message(), testing::AllOf(HasSubstr("\"it\""), HasSubstr("moments8")));
      }
    }
}

TEST(Catalog, NamesMayHoldAnyBytes) {
  Catalog catalog = sample();
  catalog.parameters[0].name = std::string("\0\xff\n/..\"", 8);
  catalog.parameters[1].name.assign(kNameBytesMax, '\xc3');
  const auto decoded = decode_catalog(encode(catalog));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, catalog);
}

TEST(Catalog, LayoutIsTheOneOfItsSuperblockOrRefused) {
  const Catalog catalog = sample();
  Superblock superblock = superblock_of(catalog, 0);
  const auto layout = layout_of(catalog, superblock);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_EQ(layout->chunks().size(), catalog.chunks.size());
  EXPECT_EQ(layout->chunks()[0].record.bytes, 16384u * 12);

  superblock.chunk_elements = 32768;
  EXPECT_EQ(layout_of(catalog, superblock).status().code(), Code::kDataLoss);
  EXPECT_THAT(layout_of(catalog, superblock).status().message(), HasSubstr("chunk_elements = 32768"));
  superblock.chunk_elements = 16384;
  superblock.grid_bytes = 8192;  // slots were cut for 4096
  EXPECT_EQ(layout_of(catalog, superblock).status().code(), Code::kDataLoss);
  EXPECT_THAT(layout_of(catalog, superblock).status().message(), HasSubstr("has a record of"));
}

TEST(Catalog, ElementsLessThanAllChunksHoldAreNotLaidOutInMore) {
  Catalog catalog;
  catalog.parameters.push_back({.name = "vast", .shape = {1ll << 62}});
  for (int i = 0; i < 8; ++i) catalog.chunks.push_back({0, 1u << 30, 0});
  EXPECT_THAT(check(catalog).message(), HasSubstr("need chunks of 4611686018427387904"));
  catalog.parameters[0].shape = {std::int64_t{8} << 32};
  for (StoredChunk& chunk : catalog.chunks) chunk.elements = 0;
  catalog.chunks[0].elements = 1;
  EXPECT_EQ(check(catalog).code(), Code::kInvalidArgument);
}

TEST(Catalog, SlotsOutsideTheirContainerAreRefused) {
  const Catalog catalog = sample();
  for (const std::uint32_t drive : {0u, 1u}) {
    const Superblock superblock = superblock_of(catalog, drive);
    EXPECT_TRUE(check_runs(catalog, superblock).ok()) << check_runs(catalog, superblock).to_string();

    Superblock shorter = superblock;
    --shorter.container_bytes;
    EXPECT_EQ(check_runs(catalog, shorter).code(), Code::kDataLoss);
    Superblock later = superblock;
    later.slots_offset += 4096;
    EXPECT_EQ(check_runs(catalog, later).code(), Code::kDataLoss);
    Superblock coarser = superblock;
    coarser.grid_bytes = 1 << 20;
    EXPECT_EQ(check_runs(catalog, coarser).code(), Code::kDataLoss);
    Superblock alone = superblock;
    alone.drives = 1;
    EXPECT_THAT(check_runs(catalog, alone).message(), HasSubstr("on drive 1 of 1"));
  }
}

TEST(CountElements, IsTheProductOrRefused) {
  const auto count = [](std::vector<std::int64_t> shape) { return count_elements(shape); };
  EXPECT_EQ(count({}).value(), 1u);
  EXPECT_EQ(count({3, 4, 5}).value(), 60u);
  EXPECT_EQ(count({1ll << 62, 2}).value(), std::uint64_t{1} << 63);
  EXPECT_EQ(count({1ll << 62, 1ll << 62, 0}).value(), 0u);
  EXPECT_EQ(count({1ll << 62, 3}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(count({1ll << 32, 1ll << 32}).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(count({0, -7}).status().message(), HasSubstr("-7"));
}

}  // namespace
}  // namespace sluice::store
