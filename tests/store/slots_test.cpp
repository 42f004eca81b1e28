#include "store/slots.hpp"

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>

namespace sluice::store {
namespace {

ChunkLayout chunk(std::uint32_t class_index, std::uint64_t record_bytes, std::uint64_t gradient_bytes) {
  ChunkLayout layout;
  layout.class_index = class_index;
  layout.elements = 256;
  layout.record.bytes = record_bytes;
  layout.gradient_bytes = gradient_bytes;
  return layout;
}

// Two stepped chunks, the second short, and two frozen ones.
const std::vector<ChunkLayout> kChunks = {chunk(0, 49152, 16384), chunk(0, 16384, 4096), chunk(1, 8192, 0),
                                          chunk(1, 8192, 0)};
const std::vector<std::uint32_t> kAll = {0, 1, 2, 3};

SlotTable planned(const SlotOptions& options) {
  auto table = SlotTable::plan(options);
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return std::move(*table);
}

TEST(SlotTable, SteppedChunksHaveTwoSlotsFrozenOnes) {
  const SlotTable table = planned({.chunks = kChunks, .stored_chunks = kAll, .first_offset = 4096});
  EXPECT_EQ(table.container_bytes(0), 4096u + 4 * 49152 + 2 * 8192);
}

TEST(SlotTable, WithoutUndoOneSlotAChunk) {
  const SlotTable table =
      planned({.chunks = kChunks, .stored_chunks = kAll, .undo = Undo::kOff, .first_offset = 4096});
  EXPECT_EQ(table.container_bytes(0), 4096u + 2 * 49152 + 2 * 8192);
}

TEST(SlotTable, ChunksThatAreNotStoredTakeNoRoom) {
  const std::vector<std::uint32_t> stored = {1, 3};
  const SlotTable table = planned({.chunks = kChunks, .stored_chunks = stored});
  EXPECT_EQ(table.container_bytes(0), 2u * 16384 + 8192);  // the class's largest stored record
  EXPECT_EQ(planned({.chunks = kChunks}).container_bytes(0), 0u);
}

TEST(SlotTable, DrivesTakeTurns) {
  SlotTable table = planned({.chunks = kChunks, .stored_chunks = kAll, .drives = 2, .first_offset = 4096});
  EXPECT_EQ(table.container_bytes(0), 4096u + 2 * 49152 + 8192);
  EXPECT_EQ(table.container_bytes(1), 4096u + 2 * 49152 + 8192);
  for (const std::uint32_t index : kAll) EXPECT_EQ(table.acquire(index)->drive, index % 2);
}

TEST(SlotTable, GivesOutEverySlotOnceAndThenNone) {
  SlotTable table = planned({.chunks = kChunks, .stored_chunks = kAll});
  std::set<std::uint64_t> offsets;
  for (int i = 0; i < 4; ++i) offsets.insert(table.acquire(0)->offset);
  EXPECT_EQ(offsets.size(), 4u);
  EXPECT_EQ(table.acquire(1), std::nullopt);
  table.release(1, {0, *offsets.begin()});
  EXPECT_EQ(table.acquire(0)->offset, *offsets.begin());
}

TEST(SlotTable, StepsThatFlipEveryChunkKeepTheOrderOnTheDrive) {
  const std::vector<ChunkLayout> chunks(6, chunk(0, 4096, 4096));
  const std::vector<std::uint32_t> all = {0, 1, 2, 3, 4, 5};
  SlotTable table = planned({.chunks = chunks, .stored_chunks = all});
  std::vector<io::Place> current, next(6);
  for (const std::uint32_t index : all) current.push_back(*table.acquire(index));
  for (int step = 0; step < 5; ++step) {
    for (const std::uint32_t index : all) next[index] = *table.acquire(index);
    EXPECT_TRUE(std::is_sorted(next.begin(), next.end(),
                               [](const io::Place& a, const io::Place& b) { return a.offset < b.offset; }));
    for (const std::uint32_t index : all) table.release(index, std::exchange(current[index], next[index]));
  }
}

TEST(SlotTable, SlotsNeverOverlapOrLeaveTheContainer) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<ChunkLayout> chunks;
    std::vector<std::uint32_t> stored;
    for (std::uint32_t i = 0; i < 30; ++i) {
      const auto class_index = static_cast<std::uint32_t>(random() % 4);
      chunks.push_back(chunk(class_index, 4096 * (1 + random() % 5), class_index == 3 ? 0 : 4096));
      if (random() % 4 != 0) stored.push_back(i);
    }
    const auto drives = static_cast<std::uint32_t>(1 + random() % 3);
    SlotTable table =
        planned({.chunks = chunks, .stored_chunks = stored, .drives = drives, .first_offset = 8192});
    std::map<std::uint32_t, std::map<std::uint64_t, std::uint64_t>> extents;  // by drive: offset, end
    for (const std::uint32_t index : stored) {
      const int share = chunks[index].gradient_bytes == 0 ? 1 : 2;
      for (int i = 0; i < share; ++i) {
        const auto place = table.acquire(index);
        ASSERT_TRUE(place) << "every chunk finds its share";
        EXPECT_EQ(place->offset % 4096, 0u);
        EXPECT_TRUE(
            extents[place->drive].emplace(place->offset, place->offset + chunks[index].record.bytes).second);
      }
    }
    for (const auto& [drive, of_drive] : extents) {
      std::uint64_t end = 8192;
      for (const auto& [first, last] : of_drive) {
        EXPECT_GE(first, end);
        end = last;
      }
      EXPECT_LE(end, table.container_bytes(drive));
    }
    for (const std::uint32_t index : stored) EXPECT_EQ(table.acquire(index), std::nullopt);
  }
}

TEST(SlotTable, ContainerBeyond63BitsIsRefused) {
  const std::vector<ChunkLayout> chunks(3, chunk(0, std::uint64_t{1} << 61, 4096));
  const std::vector<std::uint32_t> all = {0, 1, 2};
  EXPECT_EQ(SlotTable::plan({.chunks = chunks, .stored_chunks = all}).status().code(),
            Code::kResourceExhausted);
}

using SlotTableDeathTest = testing::Test;

TEST(SlotTableDeathTest, MistakesEndTheProcessWithTheirValues) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const std::vector<std::uint32_t> stored = {0, 1, 2};
  SlotTable table = planned({.chunks = kChunks, .stored_chunks = stored});
  const io::Place place = *table.acquire(0);
  EXPECT_DEATH((void)table.acquire(3), "chunk 3 has no slots");
  EXPECT_DEATH(table.release(0, {place.drive, place.offset + 4096}), "not a slot that chunk 0 holds");
  EXPECT_DEATH(table.release(0, {1, place.offset}), "not a slot that chunk 0 holds");
  EXPECT_DEATH(
      {
        table.release(0, place);
        table.release(0, place);
      },
      "not a slot that chunk 0 holds");
}

}  // namespace
}  // namespace sluice::store
