#include "plan/trace.hpp"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

namespace sluice::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Trace trace_of(std::vector<std::uint32_t> items) { return Trace(std::move(items)); }

TEST(Trace, ListsOccurrencesInOrder) {
  const Trace trace = trace_of({7, 3, 7, 4000000000u, 3, 7});
  EXPECT_THAT(trace.occurrences(7), ElementsAre(0, 2, 5));
  EXPECT_THAT(trace.occurrences(3), ElementsAre(1, 4));
  EXPECT_THAT(trace.occurrences(4000000000u), ElementsAre(3));
  EXPECT_THAT(trace.occurrences(5), IsEmpty());
}

TEST(Trace, EmptyOneKnowsNothing) {
  for (const Trace& trace : {Trace(), trace_of({})}) {
    EXPECT_EQ(trace.size(), 0u);
    EXPECT_THAT(trace.occurrences(0), IsEmpty());
    EXPECT_EQ(trace.distance(0, 0), kNever);
  }
}

TEST(Trace, DistancesEqualASearchByHand) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<std::uint32_t> items(1 + random() % 40);
    for (auto& item : items) item = static_cast<std::uint32_t>(random() % 12);
    const Trace trace(items);
    for (std::uint32_t position = 0; position < items.size(); ++position) {
      for (std::uint32_t item = 0; item < 14; ++item) {
        Distance expected = kNever;
        for (std::uint32_t ahead = 0; ahead < items.size() && expected == kNever; ++ahead) {
          if (items[(position + ahead) % items.size()] == item) expected = ahead;
        }
        EXPECT_EQ(trace.distance(position, item), expected) << "position " << position << " item " << item;
      }
    }
  }
}

TEST(TraceRecorder, StartsAgainAfterFinish) {
  TraceRecorder recorder;
  recorder.access(1);
  recorder.access(2);
  EXPECT_THAT(recorder.finish().items(), ElementsAre(1, 2));
  recorder.access(3);
  EXPECT_THAT(recorder.finish().items(), ElementsAre(3));
  EXPECT_EQ(recorder.finish().size(), 0u);
}

TEST(Cursor, FollowsTheTraceIntoTheNextPass) {
  const Trace trace = trace_of({1, 2, 1, 3});
  Cursor cursor(trace);
  for (int pass = 0; pass < 3; ++pass) {
    for (std::uint32_t position = 0; position < 4; ++position) {
      EXPECT_EQ(cursor.position(), position);
      EXPECT_TRUE(cursor.access(trace.items()[position]));
    }
  }
  EXPECT_EQ(cursor.position(), 0u);
}

TEST(Cursor, NextUseCountsAccessesAndWraps) {
  const Trace trace = trace_of({1, 2, 1, 3});
  Cursor cursor(trace);
  EXPECT_EQ(cursor.next_use(1), 0u);
  EXPECT_EQ(cursor.next_use(3), 3u);
  EXPECT_EQ(cursor.next_use(9), kNever);
  cursor.access(1);
  EXPECT_EQ(cursor.next_use(1), 1u);
  cursor.access(2);
  cursor.access(1);
  EXPECT_EQ(cursor.next_use(2), 2u);
  EXPECT_EQ(cursor.item_ahead(0), 3u);
  EXPECT_EQ(cursor.item_ahead(2), 2u);
  EXPECT_EQ(cursor.item_ahead(4), 3u);
  EXPECT_EQ(cursor.item_ahead(4'000'000'000'003), 1u);
}

TEST(Cursor, SurpriseGoesOnAtTheNearestLaterMatch) {
  const Trace trace = trace_of({1, 2, 3, 2, 4});
  Cursor cursor(trace);
  EXPECT_FALSE(cursor.access(3));  // 1 and 2 were skipped
  EXPECT_EQ(cursor.position(), 3u);
  EXPECT_FALSE(cursor.access(1));  // in the next pass
  EXPECT_EQ(cursor.position(), 1u);
}

TEST(Cursor, SurpriseThatTheTraceLacksLeavesThePosition) {
  const Trace trace = trace_of({1, 2, 3});
  Cursor cursor(trace);
  cursor.access(1);
  EXPECT_FALSE(cursor.access(77));
  EXPECT_EQ(cursor.position(), 1u);
  EXPECT_TRUE(cursor.access(2));
}

TEST(Cursor, StartPassForgetsAnEarlyEnd) {
  const Trace trace = trace_of({1, 2, 3});
  Cursor cursor(trace);
  cursor.access(1);
  cursor.access(2);
  cursor.start_pass();
  EXPECT_TRUE(cursor.access(1));
}

TEST(Cursor, EmptyTraceTakesAnyAccess) {
  const Trace trace;
  Cursor cursor(trace);
  EXPECT_FALSE(cursor.access(5));
  EXPECT_EQ(cursor.position(), 0u);
  EXPECT_EQ(cursor.next_use(5), kNever);
}

TEST(Trace, MillionAccessesAreFollowed) {
  std::vector<std::uint32_t> items(1'000'000);
  std::iota(items.begin(), items.begin() + 500'000, 0u);
  std::iota(items.rbegin(), items.rbegin() + 500'000, 0u);
  const Trace trace(items);
  Cursor cursor(trace);
  std::uint64_t sum = 0;
  for (const std::uint32_t item : items) {
    ASSERT_TRUE(cursor.access(item));
    sum += cursor.next_use(item);
  }
  // Item i is used at i and 999999 - i: the two distances after each use sum to the pass, less one each.
  EXPECT_EQ(sum, 500'000ull * (1'000'000 - 2));
}

}  // namespace
}  // namespace sluice::plan
