#include "memory/range_allocator.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace sluice::memory {
namespace {

TEST(RangeAllocator, OffsetsAreAlignedAndTheWholeCapacityCanBeUsed) {
  RangeAllocator ranges(1024);
  EXPECT_EQ(ranges.allocate(1), 0u);
  EXPECT_EQ(ranges.allocate(256), 256u);
  EXPECT_EQ(ranges.allocate(257), 512u);
  EXPECT_EQ(ranges.free_bytes(), 0u);
  EXPECT_EQ(ranges.allocate(1), std::nullopt);
}

TEST(RangeAllocator, TakesTheSmallestRangeThatFits) {
  RangeAllocator ranges(4096);
  const auto large = ranges.allocate(1024);
  ASSERT_TRUE(ranges.allocate(256));
  const auto small = ranges.allocate(512);
  ASSERT_TRUE(ranges.allocate(256));
  ranges.release(*large);
  ranges.release(*small);
  EXPECT_EQ(ranges.allocate(512), small);
  EXPECT_EQ(ranges.allocate(700), large);
}

TEST(RangeAllocator, NeighboursMergeInEveryOrderOfRelease) {
  for (const std::vector<int>& order :
       std::vector<std::vector<int>>{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    RangeAllocator ranges(768);
    std::uint64_t offsets[3];
    for (std::uint64_t& offset : offsets) offset = *ranges.allocate(256);
    for (const int i : order) ranges.release(offsets[i]);
    EXPECT_EQ(ranges.largest_free_bytes(), 768u);
    EXPECT_EQ(ranges.allocate(768), 0u);
  }
}

TEST(RangeAllocator, FragmentedRoomIsNotGivenAsOne) {
  RangeAllocator ranges(1024);
  std::uint64_t offsets[4];
  for (std::uint64_t& offset : offsets) offset = *ranges.allocate(256);
  ranges.release(offsets[0]);
  ranges.release(offsets[2]);
  EXPECT_EQ(ranges.free_bytes(), 512u);
  EXPECT_EQ(ranges.largest_free_bytes(), 256u);
  EXPECT_EQ(ranges.allocate(512), std::nullopt);
}

TEST(RangeAllocator, EmptyRequestsTakeNoRoomEvenWhenNoneIsLeft) {
  RangeAllocator ranges(256);
  const auto whole = ranges.allocate(256);
  const auto first = ranges.allocate(0);
  const auto second = ranges.allocate(0);
  ASSERT_TRUE(whole && first && second);
  ranges.release(*first);
  EXPECT_EQ(ranges.free_bytes(), 0u);
  ranges.release(*second);
  ranges.release(*whole);
  EXPECT_EQ(ranges.free_bytes(), 256u);
}

TEST(RangeAllocator, CapacityIsCutToTheAlignment) {
  RangeAllocator ranges(700);
  EXPECT_EQ(ranges.free_bytes(), 512u);
  EXPECT_EQ(ranges.allocate(513), std::nullopt);
  RangeAllocator none(255);
  EXPECT_EQ(none.largest_free_bytes(), 0u);
  EXPECT_EQ(none.allocate(1), std::nullopt);
  EXPECT_TRUE(none.allocate(0));
}

TEST(RangeAllocator, RequestsNearTheEndOfTheNumbersAreRefused) {
  RangeAllocator ranges(1024);
  EXPECT_EQ(ranges.allocate(UINT64_MAX), std::nullopt);
  RangeAllocator huge(UINT64_MAX);
  EXPECT_EQ(huge.allocate(UINT64_MAX), std::nullopt);
  EXPECT_EQ(huge.allocate(UINT64_MAX - 255), 0u);
}

TEST(RangeAllocatorDeathTest, ReleaseOfWhatIsNotAllocatedEndsTheProcess) {
  RangeAllocator ranges(1024);
  const auto offset = ranges.allocate(512);
  EXPECT_DEATH(ranges.release(256), "offset 256 of capacity 1024 is not allocated");
  EXPECT_DEATH(ranges.release(1024), "offset 1024 of capacity 1024 is not allocated");
  ranges.release(*offset);
  EXPECT_DEATH(ranges.release(*offset), "is not allocated");
}

// Against a model that knows every byte's owner.
TEST(RangeAllocator, AnyOrderOfCallsKeepsRangesApartAndLosesNoByte) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    constexpr std::uint64_t kUnits = 128;
    RangeAllocator ranges(kUnits * 256);
    std::map<std::uint64_t, std::uint64_t> live;  // offset -> units
    std::vector<bool> used(kUnits);
    const auto longest_free_units = [&] {
      std::uint64_t longest = 0, run = 0;
      for (const bool taken : used) longest = std::max(longest, run = taken ? 0 : run + 1);
      return longest;
    };
    for (int step = 0; step < 2000; ++step) {
      if (live.empty() || random() % 2 == 0) {
        const std::uint64_t bytes = 1 + random() % (random() % 8 == 0 ? 8192 : 1024);
        const std::uint64_t units = (bytes + 255) / 256;
        const auto offset = ranges.allocate(bytes);
        ASSERT_EQ(offset.has_value(), longest_free_units() >= units);
        if (!offset) continue;
        ASSERT_EQ(*offset % 256, 0u);
        for (std::uint64_t i = *offset / 256; i < *offset / 256 + units; ++i) {
          ASSERT_FALSE(used.at(i));
          used[i] = true;
        }
        live.emplace(*offset, units);
      } else {
        const auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
        for (std::uint64_t i = 0; i < victim->second; ++i) used[victim->first / 256 + i] = false;
        ranges.release(victim->first);
        live.erase(victim);
      }
      std::uint64_t used_units = 0;
      for (const auto& [offset, units] : live) used_units += units;
      ASSERT_EQ(ranges.free_bytes(), (kUnits - used_units) * 256);
      ASSERT_EQ(ranges.largest_free_bytes(), longest_free_units() * 256);
    }
    for (const auto& [offset, units] : live) ranges.release(offset);
    EXPECT_EQ(ranges.largest_free_bytes(), kUnits * 256);
  }
}

}  // namespace
}  // namespace sluice::memory
