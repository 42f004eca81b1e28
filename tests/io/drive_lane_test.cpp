#include "io/drive_lane.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>

#include "support/sim_world.hpp"

namespace sluice::io {
namespace {

/// A lane with endless work of chosen classes.
class DriveLaneTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kDepth = 32;

  void offer(Priority priority) {
    Transfer& transfer = transfers_[static_cast<std::size_t>(priority)];
    transfer.priority = priority;
    lane_.wait(transfer);
  }
  void withdraw(Priority priority) { lane_.leave(transfers_[static_cast<std::size_t>(priority)]); }

  /// Starts what there is room for. Returns: how many pieces.
  std::uint32_t fill() {
    std::uint32_t started = 0;
    while (const Transfer* transfer = lane_.start()) {
      ++held(transfer->priority);
      last_ = transfer->priority;
      ++started;
    }
    return started;
  }
  void end(Priority priority) {
    lane_.end(priority);
    --held(priority);
  }
  std::uint32_t& held(Priority priority) { return held_[static_cast<std::size_t>(priority)]; }

  DriveLane lane_{kDepth};
  std::array<Transfer, kPriorityCount> transfers_;
  std::array<std::uint32_t, kPriorityCount> held_ = {};
  Priority last_ = Priority::kDemand;
};

TEST_F(DriveLaneTest, OneClassAloneHasTheWholeDepth) {
  for (const Priority priority : {Priority::kDemand, Priority::kReadAhead, Priority::kBackground}) {
    DriveLane lane(kDepth);
    Transfer transfer;
    transfer.priority = priority;
    lane.wait(transfer);
    std::uint32_t started = 0;
    while (lane.start() != nullptr) ++started;
    EXPECT_EQ(started, kDepth);
    EXPECT_EQ(lane.in_flight(), kDepth);
  }
}

TEST_F(DriveLaneTest, ADemandReadStartsAtOnceThoughWriteBehindHasFilledItsShare) {
  offer(Priority::kDemand);
  fill();
  withdraw(Priority::kDemand);
  for (std::uint32_t i = 0; i < kDepth; ++i) end(Priority::kDemand);
  offer(Priority::kBackground);
  offer(Priority::kReadAhead);
  fill();
  EXPECT_EQ(held(Priority::kBackground) + held(Priority::kReadAhead), kDepth - lane_.reserve());
  offer(Priority::kDemand);
  EXPECT_EQ(fill(), lane_.reserve());
  EXPECT_EQ(held(Priority::kDemand), lane_.reserve());
  EXPECT_EQ(lane_.reserve(), 2u);
}

TEST_F(DriveLaneTest, ThePlaceKeptFreeIsGivenBackOnceNoReadWasSeenForLong) {
  offer(Priority::kReadAhead);
  fill();
  withdraw(Priority::kReadAhead);
  for (std::uint32_t i = 0; i < kDepth; ++i) end(Priority::kReadAhead);
  offer(Priority::kBackground);
  for (std::uint32_t started = fill(); started < DriveLane::kMemory; ++started) {
    EXPECT_EQ(held(Priority::kBackground), kDepth - lane_.reserve());
    end(Priority::kBackground);
    EXPECT_GE(fill(), 1u);
  }
  EXPECT_EQ(held(Priority::kBackground), kDepth);
}

TEST_F(DriveLaneTest, AReadAfterAPhaseOfWritesIsTheNextThatStarts) {
  offer(Priority::kBackground);
  fill();
  EXPECT_EQ(held(Priority::kBackground), kDepth);
  offer(Priority::kDemand);
  EXPECT_EQ(fill(), 0u);
  end(Priority::kBackground);
  EXPECT_EQ(fill(), 1u);
  EXPECT_EQ(last_, Priority::kDemand);
}

TEST_F(DriveLaneTest, NoClassStarvesWhateverIsAskedOfTheOthers) {
  for (const Priority priority : {Priority::kDemand, Priority::kReadAhead, Priority::kBackground})
    offer(priority);
  const std::uint64_t seed = sim::seed_or(20261130);
  SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::array<std::uint32_t, kPriorityCount> started = {};
  fill();
  for (int i = 0; i < 30'000; ++i) {
    std::uint64_t which = random() % kDepth;  // any piece in flight may be the next to finish
    std::size_t c = 0;
    while (which >= held_[c]) which -= held_[c++];
    end(static_cast<Priority>(c));
    ASSERT_EQ(fill(), 1u);
    ++started[static_cast<std::size_t>(last_)];
  }
  EXPECT_GT(started[0], 22'000u);
  EXPECT_GT(started[1], 2000u);  // each about one in kPatience + 2
  EXPECT_GT(started[2], 2000u);
}

TEST_F(DriveLaneTest, WriteBehindAtItsShareIsNotPassedOver) {
  offer(Priority::kReadAhead);
  offer(Priority::kBackground);
  fill();
  withdraw(Priority::kReadAhead);
  while (held(Priority::kReadAhead) > 0) {
    end(Priority::kReadAhead);
    fill();
  }
  EXPECT_EQ(held(Priority::kBackground), kDepth - lane_.reserve());
  offer(Priority::kReadAhead);  // has the reserve alone, again and again
  for (int i = 0; i < 100; ++i) {
    fill();
    end(Priority::kReadAhead);
  }
  fill();
  end(Priority::kBackground);
  fill();
  EXPECT_EQ(last_, Priority::kReadAhead);
}

TEST_F(DriveLaneTest, ADepthThatShrinksIsReachedAsPiecesEnd) {
  offer(Priority::kReadAhead);
  fill();
  lane_.set_depth(4);
  for (std::uint32_t left = kDepth; left > 4; --left) {
    EXPECT_EQ(fill(), 0u);
    end(Priority::kReadAhead);
  }
  EXPECT_EQ(fill(), 0u);
  end(Priority::kReadAhead);
  EXPECT_EQ(fill(), 1u);
}

TEST_F(DriveLaneTest, ADepthOfOneServesEveryClass) {
  DriveLane lane(1);
  for (Transfer& transfer : transfers_) {
    transfer.priority = static_cast<Priority>(&transfer - transfers_.data());
    lane.wait(transfer);
  }
  std::array<int, kPriorityCount> started = {};
  for (int i = 0; i < 100; ++i) {
    const Transfer* transfer = lane.start();
    ASSERT_NE(transfer, nullptr);
    ++started[static_cast<std::size_t>(transfer->priority)];
    lane.end(transfer->priority);
  }
  for (const int times : started) EXPECT_GE(times, 9);
}

TEST(TransferList, KeepsItsOrderWhereverOneLeaves) {
  std::deque<Transfer> transfers(5);
  for (std::size_t gone = 0; gone < transfers.size(); ++gone) {
    TransferList list;
    for (Transfer& transfer : transfers) list.push(transfer);
    list.remove(transfers[gone]);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (i != gone) {
        EXPECT_EQ(&list.pop(), &transfers[i]);
      }
    }
    EXPECT_TRUE(list.empty());
  }
}

}  // namespace
}  // namespace sluice::io
