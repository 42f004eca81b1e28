#include "io/drop_behind.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace sluice::io {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Drop {
  int fd;
  std::uint64_t offset;
  std::uint64_t bytes;
  bool operator==(const Drop&) const = default;
};

std::vector<Drop> due(DropBehind& drops) {
  std::vector<Drop> all;
  while (drops.due()) {
    Request request;
    drops.next(request);
    EXPECT_EQ(request.op, Op::kDropCache);
    all.push_back({request.fd, request.offset, request.bytes});
  }
  return all;
}

TEST(DropBehind, WhatWasReadIsDueAtOnceInRangesThatAreJoined) {
  DropBehind drops;
  drops.read(3, 0, 100);
  drops.read(3, 100, 50);
  drops.read(3, 500, 10);
  drops.read(3, 490, 10);
  drops.read(4, 510, 10);
  drops.read(4, 0, DropBehind::kJoinedBytes);
  drops.read(4, DropBehind::kJoinedBytes, 1);
  EXPECT_THAT(due(drops),
              ElementsAre(Drop{3, 0, 150}, Drop{3, 490, 20}, Drop{4, 510, 10},
                          Drop{4, 0, DropBehind::kJoinedBytes}, Drop{4, DropBehind::kJoinedBytes, 1}));
  EXPECT_THAT(due(drops), IsEmpty());
}

TEST(DropBehind, WhatWasWrittenIsBegunWhenItsRangeIsCompleteAndDroppedAWindowLater) {
  DropBehind drops;
  constexpr std::uint64_t kRange = DropBehind::kJoinedBytes;
  constexpr std::uint64_t kInWindow = DropBehind::kWindowBytes / kRange;
  std::vector<int> seen(20);
  for (std::uint64_t i = 0; i < seen.size(); ++i) {
    drops.written(3, i * kRange, kRange / 2);
    drops.written(3, i * kRange + kRange / 2, kRange / 2);
    for (const Drop& drop : due(drops)) {
      EXPECT_EQ(drop.bytes, kRange);
      const std::uint64_t number = drop.offset / kRange;
      // Begun as soon as the next range starts, dropped when a window of writes lies behind it.
      EXPECT_EQ(i - number, seen[number] == 0 ? 1 : kInWindow) << number;
      ++seen[number];
    }
  }
  for (std::size_t i = 0; i < seen.size() - kInWindow; ++i) EXPECT_EQ(seen[i], 2) << i;
}

TEST(DropBehind, AFlushDropsAllOfItsFileAndNothingOfOthers) {
  DropBehind drops;
  drops.written(3, 0, 100);
  drops.written(4, 0, 100);
  drops.read(3, 4096, 100);
  drops.flushed(3);
  EXPECT_THAT(due(drops), ElementsAre(Drop{3, 0, DropBehind::kToTheEnd}));
  drops.flushed(4);
  EXPECT_THAT(due(drops), ElementsAre(Drop{4, 0, DropBehind::kToTheEnd}));
  for (std::uint64_t at = 0; at < 2 * DropBehind::kWindowBytes; at += DropBehind::kJoinedBytes)
    drops.written(5, at, DropBehind::kJoinedBytes);
  for (const Drop& drop : due(drops)) EXPECT_EQ(drop.fd, 5);  // nothing is left to do for the others
}

TEST(DropBehind, MoreRangesThanAreKeptBecomeTheWholeFile) {
  DropBehind drops;
  drops.read(9, 7, 1);
  for (std::uint64_t i = 0; i < 1000; ++i) drops.read(3, i * 8192, 4096);
  EXPECT_THAT(due(drops), ElementsAre(Drop{9, 7, 1}, Drop{3, 0, DropBehind::kToTheEnd}));
}

TEST(DropBehind, KeepsNoMoreThanItsRangesWhateverComes) {
  DropBehind drops;
  for (int fd = 0; fd < 1000; ++fd) {
    drops.read(fd, 0, 10);
    drops.written(fd, 1 << 20, 10);
  }
  EXPECT_EQ(due(drops).size(), DropBehind::kRanges);
}

}  // namespace
}  // namespace sluice::io
