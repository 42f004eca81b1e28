#include "store/slots.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "support/sim_world.hpp"

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
  table.release(0, {0, *offsets.begin()});
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

TEST(SlotTable, EachCommitThatIsKeptTakesASlotOfSteppedChunks) {
  SlotOptions options{.chunks = kChunks, .stored_chunks = kAll, .keep_commits = 3, .first_offset = 4096};
  EXPECT_EQ(planned(options).container_bytes(0), 4096u + 2 * 5 * 49152 + 2 * 8192);
  options.undo = Undo::kOff;
  EXPECT_EQ(planned(options).container_bytes(0), 4096u + 2 * 4 * 49152 + 2 * 8192);
}

TEST(SlotTable, SlotIsFreeWithItsLastReferenceAlone) {
  const std::vector<std::uint32_t> one = {0};
  SlotTable table = planned({.chunks = kChunks, .stored_chunks = one, .undo = Undo::kOff});
  const io::Place place = *table.acquire(0);
  EXPECT_FALSE(table.shared(0, place));
  ASSERT_TRUE(table.retain(0, place).ok());
  ASSERT_TRUE(table.retain(0, place).ok());
  table.release(0, place);
  EXPECT_TRUE(table.shared(0, place));
  table.release(0, place);
  EXPECT_FALSE(table.shared(0, place));
  EXPECT_EQ(table.acquire(0), std::nullopt);
  table.release(0, place);
  EXPECT_EQ(table.acquire(0)->offset, place.offset);
}

/// What a table should know, kept in the plainest way.
struct PlainTable {
  struct Held {
    std::uint32_t chunk = 0;
    int references = 0;
    std::uint64_t bytes = 0;
  };
  using Key = std::pair<std::uint32_t, std::uint64_t>;                                // drive, offset
  std::map<Key, Held> held;                                                           // by place
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::uint64_t>> free;  // by class, drive

  std::vector<Key> places_of(std::uint32_t chunk) const {
    std::vector<Key> places;
    for (const auto& [key, one] : held) {
      if (one.chunk == chunk) places.push_back(key);
    }
    return places;
  }
};

void expect_no_overlap(const PlainTable& plain, io::Place place, std::uint64_t bytes) {
  for (const auto& [key, held] : plain.held) {
    if (key.first != place.drive) continue;
    EXPECT_TRUE(key.second + held.bytes <= place.offset || place.offset + bytes <= key.second)
        << "offset " << place.offset << " overlaps that of chunk " << held.chunk;
  }
}

TEST(SlotTable, DoesAsAPlainTableDoesInAnyOrderOfCalls) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::uint64_t seed = sim::seed_or(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<ChunkLayout> chunks;
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = 0; i < 12; ++i) {
      const auto class_index = static_cast<std::uint32_t>(random() % 3);
      chunks.push_back(chunk(class_index, 4096 * (1 + class_index), class_index == 2 ? 0 : 4096));
      all.push_back(i);
    }
    const auto drives = static_cast<std::uint32_t>(1 + random() % 3);
    std::vector<double> weights;
    for (std::uint32_t drive = 0; drive < drives; ++drive)
      weights.push_back(static_cast<double>(1 + random() % 10));
    SlotTable table = planned({.chunks = chunks,
                               .stored_chunks = all,
                               .drives = drives,
                               .weights = weights,
                               .spares = random() % 2 == 0 ? Spares::kSome : Spares::kNone,
                               .keep_commits = static_cast<std::uint32_t>(random() % 3),
                               .undo = random() % 2 == 0 ? Undo::kOn : Undo::kOff,
                               .first_offset = 4096});
    PlainTable plain;
    for (const SlotRun& run : table.runs()) {
      auto& free = plain.free[{run.class_index, run.drive}];
      for (std::uint64_t slot = 0; slot < run.slots; ++slot)
        free.push_back(run.first_offset + slot * run.slot_bytes);
    }
    const std::vector<StoredChunk> stored = table.stored_chunks();
    std::vector<std::uint64_t> made_bytes;
    for (std::uint32_t drive = 0; drive < drives; ++drive) made_bytes.push_back(table.container_bytes(drive));

    for (int call = 0; call < 2000; ++call) {
      const auto index = static_cast<std::uint32_t>(random() % chunks.size());
      const std::uint32_t drive = stored[index].drive;
      const std::uint64_t bytes = chunks[index].record.bytes;
      const auto free_on = [&](std::uint32_t on) -> auto& {
        return plain.free[{chunks[index].class_index, on}];
      };
      const auto places = plain.places_of(index);
      const std::uint64_t kind = random() % 5;
      const auto asked = static_cast<std::uint32_t>(random() % drives);
      ASSERT_EQ(table.offers(index, asked), !free_on(asked).empty());
      if (kind == 4 && table.offers(index, asked)) {
        const io::Place place = table.acquire(index, asked);
        ASSERT_EQ(place.drive, asked);
        ASSERT_EQ(place.offset, free_on(asked).front()) << "not the one that has been free longest";
        free_on(asked).pop_front();
        plain.held[{asked, place.offset}] = {index, 1, bytes};
      } else if (kind == 0) {
        const auto place = table.acquire(index);
        std::uint32_t expected = drive;
        while (expected < drive + drives && free_on(expected % drives).empty()) ++expected;
        ASSERT_EQ(place.has_value(), expected < drive + drives);
        if (place) {
          expected %= drives;
          ASSERT_EQ(place->drive, expected);
          ASSERT_EQ(place->offset, free_on(expected).front()) << "not the one that has been free longest";
          free_on(expected).pop_front();
          plain.held[{expected, place->offset}] = {index, 1, bytes};
          continue;
        }
        const SlotTable::Growth growth = table.next_growth(index);
        ASSERT_GE(growth.place.offset, made_bytes[drive]);
        ASSERT_GE(growth.container_bytes, growth.place.offset + bytes);
        expect_no_overlap(plain, growth.place, bytes);
        table.grow(index, growth);
        ASSERT_EQ(table.container_bytes(drive), growth.container_bytes);
        plain.held[{drive, growth.place.offset}] = {index, 1, bytes};
      } else if (!places.empty()) {
        const auto key = places[random() % places.size()];
        PlainTable::Held& held = plain.held[key];
        const io::Place place{key.first, key.second};
        if (kind == 1) {
          ASSERT_TRUE(table.retain(index, place).ok());
          ++held.references;
        } else {
          table.release(index, place);
          if (--held.references == 0) {
            plain.held.erase(key);
            if (key.second < made_bytes[key.first]) free_on(key.first).push_back(key.second);
            continue;
          }
        }
        ASSERT_EQ(table.shared(index, place), held.references > 1);
      }
    }
  }
}

TEST(SlotTable, HomesAreDealtByWeight) {
  const std::vector<ChunkLayout> chunks(30, chunk(0, 4096, 4096));
  std::vector<std::uint32_t> all(30);
  std::iota(all.begin(), all.end(), 0);
  const double weights[] = {2, 1};
  const SlotTable table = planned({.chunks = chunks, .stored_chunks = all, .drives = 2, .weights = weights});
  EXPECT_EQ(table.container_bytes(0), 20u * 2 * 4096);
  EXPECT_EQ(table.container_bytes(1), 10u * 2 * 4096);
  EXPECT_EQ(std::ranges::count(table.stored_chunks(), 0u, &StoredChunk::drive), 20);
}

TEST(SlotTable, AChunkFindsItsShareOverAllDrives) {
  SlotTable table = planned({.chunks = kChunks, .stored_chunks = kAll, .drives = 2});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(table.acquire(1, 0).drive, 0u);  // chunk 0's home is full
  for (int i = 0; i < 2; ++i) {
    const auto place = table.acquire(0);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->drive, 1u);
  }
  EXPECT_EQ(table.acquire(0), std::nullopt);
}

TEST(SlotTable, SparesAreAQuarterOfTheSteppedChunksOfEachDrive) {
  const std::vector<ChunkLayout> chunks(10, chunk(0, 4096, 4096));
  const std::vector<ChunkLayout> frozen(10, chunk(0, 4096, 0));
  std::vector<std::uint32_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  SlotOptions options{.chunks = chunks, .stored_chunks = all, .drives = 2, .spares = Spares::kSome};
  EXPECT_EQ(planned(options).container_bytes(0), (5u * 2 + 2) * 4096);
  EXPECT_EQ(planned(options).container_bytes(1), (5u * 2 + 2) * 4096);
  options.undo = Undo::kOff;
  EXPECT_EQ(planned(options).container_bytes(0), 5u * 4096);
  options.undo = Undo::kOn;
  options.drives = 1;
  EXPECT_EQ(planned(options).container_bytes(0), 10u * 2 * 4096);
  options.drives = 2;
  options.chunks = frozen;
  EXPECT_EQ(planned(options).container_bytes(0), 5u * 4096);
}

TEST(SlotTable, WhereRecordsStayAtHomeNoOtherDriveIsOffered) {
  const SlotTable made =
      planned({.chunks = kChunks, .stored_chunks = kAll, .drives = 2, .first_offset = 4096});
  const std::vector<std::uint64_t> container_bytes = {made.container_bytes(0), made.container_bytes(1)};
  auto table =
      SlotTable::restore({{}, {}, made.stored_chunks(), made.runs()}, container_bytes, Roaming::kHome)
          .value();
  EXPECT_FALSE(table.offers(0, 1));
  const Status status = table.retain(0, {1, 4096});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), testing::HasSubstr("its drive is 0"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(table.acquire(0)->drive, 0u);
  EXPECT_EQ(table.acquire(0), std::nullopt);
}

TEST(SlotTable, GrowthFillsGapsBeforeItLengthensTheContainer) {
  SlotTable table = planned({.chunks = kChunks, .stored_chunks = kAll, .first_offset = 4096});
  const std::uint64_t made_bytes = table.container_bytes(0);
  const auto grow = [&](std::uint32_t chunk) {
    const SlotTable::Growth growth = table.next_growth(chunk);
    table.grow(chunk, growth);
    return growth.place;
  };
  const io::Place first = grow(2), second = grow(3), third = grow(2);
  EXPECT_EQ(first.offset, made_bytes);
  EXPECT_EQ(second.offset, made_bytes + 8192);
  EXPECT_EQ(third.offset, made_bytes + 16384);
  EXPECT_EQ(table.container_bytes(0), made_bytes + 3 * 8192);
  table.release(3, second);
  EXPECT_EQ(grow(2).offset, second.offset);
  EXPECT_EQ(table.container_bytes(0), made_bytes + 3 * 8192);
  table.release(2, third);
  EXPECT_EQ(table.container_bytes(0), made_bytes + 3 * 8192) << "a container never becomes shorter";
  EXPECT_EQ(grow(3).offset, third.offset);
}

/// A table from what another one gives for a catalog.
SlotTable restored(const SlotTable& table, std::uint32_t drives) {
  std::vector<std::uint64_t> container_bytes;
  for (std::uint32_t drive = 0; drive < drives; ++drive)
    container_bytes.push_back(table.container_bytes(drive));
  auto again = SlotTable::restore({{}, {}, table.stored_chunks(), table.runs()}, container_bytes);
  EXPECT_TRUE(again.ok()) << again.status().to_string();
  return std::move(*again);
}

TEST(SlotTable, RestoredIsAsItWasPlanned) {
  SlotTable table = planned(
      {.chunks = kChunks, .stored_chunks = kAll, .drives = 3, .keep_commits = 2, .first_offset = 8192});
  SlotTable again = restored(table, 3);
  EXPECT_EQ(again.runs(), table.runs());
  EXPECT_EQ(again.stored_chunks(), table.stored_chunks());
  for (std::uint32_t drive = 0; drive < 3; ++drive)
    EXPECT_EQ(again.container_bytes(drive), table.container_bytes(drive));
  for (const std::uint32_t index : kAll) {
    for (auto place = table.acquire(index); place; place = table.acquire(index)) {
      const auto same = again.acquire(index);
      ASSERT_TRUE(same);
      EXPECT_EQ(same->drive, place->drive);
      EXPECT_EQ(same->offset, place->offset);
    }
    EXPECT_EQ(again.acquire(index), std::nullopt);
  }
}

TEST(SlotTable, WhatCommitsNameIsNotGivenOutAfterARestore) {
  SlotTable table = restored(planned({.chunks = kChunks, .stored_chunks = kAll, .keep_commits = 1}), 1);
  const io::Place named{0, 49152};
  ASSERT_TRUE(table.retain(0, named).ok());
  ASSERT_TRUE(table.retain(0, named).ok());
  std::set<std::uint64_t> others;
  while (const auto place = table.acquire(1)) others.insert(place->offset);
  EXPECT_EQ(others.size(), 5u);
  EXPECT_FALSE(others.contains(named.offset));
  table.release(0, named);
  EXPECT_EQ(table.acquire(0), std::nullopt);
  table.release(0, named);
  EXPECT_EQ(table.acquire(0)->offset, named.offset);
}

TEST(SlotTable, GrownSlotsComeBackByTheirReferences) {
  SlotTable table = restored(planned({.chunks = kChunks, .stored_chunks = kAll, .first_offset = 4096}), 1);
  const std::uint64_t made_bytes = table.container_bytes(0);
  const io::Place grown{0, made_bytes + 8192};
  ASSERT_TRUE(table.retain(2, grown).ok());
  ASSERT_TRUE(table.retain(2, grown).ok());
  EXPECT_EQ(table.container_bytes(0), made_bytes + 16384);
  EXPECT_EQ(table.next_growth(3).place.offset, made_bytes);
  table.release(2, grown);
  EXPECT_FALSE(table.shared(2, grown));
}

TEST(SlotTable, PlaceThatIsNoSlotOfTheChunkIsRefused) {
  SlotTable table = restored(planned({.chunks = kChunks, .stored_chunks = kAll, .first_offset = 4096}), 1);
  const std::uint64_t made_bytes = table.container_bytes(0);
  const std::uint64_t frozen_offset = 4096 + 4 * 49152;
  ASSERT_TRUE(table.retain(0, {0, 4096}).ok());
  ASSERT_TRUE(table.retain(2, {0, made_bytes + 8192}).ok());
  struct Case {
    std::uint32_t chunk;
    io::Place place;
    const char* why;
  };
  const Case cases[] = {
      {0, {1, 4096}, "there are 1"},
      {0, {0, 0}, "no slot there"},
      {0, {0, 8192}, "no slot there"},
      {0, {0, frozen_offset}, "no slot there"},
      {2, {0, 4096}, "no slot there"},
      {1, {0, 4096}, "chunk 0 is there"},
      {2, {0, made_bytes + 1}, "not a multiple of 4096"},
      {3, {0, made_bytes + 8192}, "overlaps that of chunk 2"},
      {3, {0, made_bytes + 4096}, "overlaps that of chunk 2"},
      {3, {0, made_bytes + 12288}, "overlaps that of chunk 2"},
      {3, {0, 0x7ffffffffffff000}, "within 2^63"},
      {3, {0, 0xfffffffffffff000}, "within 2^63"},
  };
  for (const Case& one : cases) {
    const Status status = table.retain(one.chunk, one.place);
    EXPECT_EQ(status.code(), Code::kDataLoss) << one.place.offset;
    EXPECT_THAT(status.message(), testing::HasSubstr(one.why));
    EXPECT_THAT(status.message(), testing::HasSubstr("chunk " + std::to_string(one.chunk)));
  }
  EXPECT_EQ(table.acquire(1)->offset, 4096u + 49152) << "a refusal has taken nothing";
  EXPECT_TRUE(table.retain(3, {0, made_bytes}).ok());
}

TEST(SlotTable, MoreSlotsThanChunksCanNeedAreRefusedBeforeTheyAreAllocated) {
  const std::uint64_t container_bytes[] = {std::uint64_t{1} << 62};
  Catalog catalog{{}, {}, {{0, 256, 0}}, {{0, 0, 4096, 4096, std::uint64_t{1} << 40}}};
  EXPECT_EQ(SlotTable::restore(catalog, container_bytes).status().code(), Code::kDataLoss);
  catalog.runs[0].slots = 17;
  EXPECT_TRUE(SlotTable::restore(catalog, container_bytes).ok());
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
  EXPECT_DEATH(table.release(1, place), "not a slot that chunk 1 holds");
  EXPECT_DEATH((void)table.shared(1, place), "not a slot that chunk 1 holds");
  EXPECT_DEATH(table.grow(2, {.place = place, .container_bytes = 0}), "chunk 2 grows at drive 0");
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
