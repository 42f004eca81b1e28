// Ranks that disagree, give up or go away: every peer learns it and none waits for ever.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "ranks.hpp"
#include "sluice/communicator.hpp"

namespace sluice {
namespace {

class Disagreement : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  const std::uint32_t world_ = GetParam();
  Ranks ranks_ = *make_in_process_communicators(world_);
};

TEST_P(Disagreement, OneRanksShardLengthIsInvalidOnAll) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    std::vector<std::byte> buffer(world_ * 16);
    const GatheredShards tensors[] = {{buffer.data(), 8},
                                      {buffer.data(), rank.rank() == world_ - 1 ? 15u : 16u}};
    const Status status = rank.all_gather(tensors);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("tensor 1 has shards of 16 bytes on rank 0, of 15 on rank"),
              std::string::npos)
        << status.message();
    EXPECT_TRUE(rank.barrier().ok());
  });
}

TEST_P(Disagreement, OneRanksTensorCountIsInvalidOnAll) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    const GatheredShards tensors[2];
    EXPECT_EQ(rank.all_gather({tensors, rank.rank() == 0 ? 2u : 1u}).code(), Code::kInvalidArgument);
    EXPECT_TRUE(rank.barrier().ok());
  });
}

TEST_P(Disagreement, OnePairsLengthIsInvalidOnAllAndNothingIsWritten) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    const std::vector<std::byte> sent(4, std::byte{1});
    std::vector<std::byte> received(world_ * 4, std::byte{9});
    std::vector<std::span<const std::byte>> sends(world_, sent);
    std::vector<std::span<std::byte>> receives;
    for (std::uint32_t peer = 0; peer < world_; ++peer)
      receives.push_back(std::span(received).subspan(peer * 4, 4));
    if (rank.rank() == 1) sends[0] = sends[0].first(3);
    const Status status = rank.all_to_all(sends, receives);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("rank 1 sends 3 bytes to rank 0, which takes 4"), std::string::npos)
        << status.message();
    EXPECT_EQ(received, std::vector<std::byte>(world_ * 4, std::byte{9}));
    EXPECT_TRUE(rank.barrier().ok());
  });
}

TEST_P(Disagreement, DifferentCallsAreRefusedOnAllAndNamed) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    const Status status = rank.rank() == 0 ? rank.barrier() : rank.all_gather({});
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_EQ(status.message(), "rank 0 calls barrier while rank 1 calls all_gather");
    EXPECT_TRUE(rank.barrier().ok());
  });
}

TEST_P(Disagreement, AbortFromOutsideEndsTheWaitOfEveryRankThatCame) {
  Communicator& absent = *ranks_.back();
  std::vector<std::thread> waiting;
  std::atomic<std::uint32_t> unavailable{0};
  for (std::uint32_t r = 0; r + 1 < world_; ++r)
    waiting.emplace_back([&, r] { unavailable += ranks_[r]->barrier().code() == Code::kUnavailable; });
  absent.abort(Status(Code::kDataLoss, "a checksum"));
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(unavailable, world_ - 1);
}

TEST_P(Disagreement, DestroyedCommunicatorEndsTheWaitOfItsPeers) {
  std::vector<std::thread> waiting;
  std::atomic<std::uint32_t> named{0};
  for (std::uint32_t r = 0; r + 1 < world_; ++r)
    waiting.emplace_back([&, r] {
      for (int call = 0; call < 2; ++call) {
        const Status status = ranks_[r]->barrier();
        named += status.code() == Code::kUnavailable &&
                 status.message() == "rank " + std::to_string(world_ - 1) + " destroyed its communicator";
      }
    });
  ranks_.back().reset();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(named, 2 * (world_ - 1));
}

// The first to leave the last call may be gone before the others have noticed that it is over.
TEST_P(Disagreement, LastCallSucceedsOnAllThoughRanksGoAtOnce) {
  for (int round = 0; round < 100; ++round) {
    Ranks ranks = *make_in_process_communicators(world_);
    std::vector<std::thread> threads;
    for (auto& rank : ranks)
      threads.emplace_back([&rank] {
        EXPECT_TRUE(rank->barrier().ok());
        rank.reset();
      });
    for (std::thread& thread : threads) thread.join();
  }
}

// A rank may free its buffers as soon as its call returns, whatever its outcome; AddressSanitizer watches.
TEST_P(Disagreement, AbortAtAnyMomentLeavesNoPeerReadingAFreedBuffer) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Ranks ranks = *make_in_process_communicators(world_);
    on_every_rank(ranks, [&](Communicator& rank) {
      std::mt19937 random(seed * 64 + rank.rank());
      const std::uint64_t abort_call = rank.rank() == seed % world_ ? random() % 20 : 1000;
      std::thread aborting;
      for (std::uint64_t call = 0; call < 20; ++call) {
        if (call == abort_call) aborting = std::thread([&] { rank.abort(Status(Code::kAborted, "a test")); });
        const auto buffer = std::make_unique<std::byte[]>(world_ * 16384);
        const GatheredShards tensor{buffer.get(), 16384};
        const Status status = rank.all_gather({&tensor, 1});
        if (status.ok()) continue;
        EXPECT_EQ(status.code(), Code::kUnavailable);
        break;
      }
      if (aborting.joinable()) aborting.join();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Disagreement, ::testing::Values(2u, 3u, 5u));

TEST(InProcess, WorldOutOfRangeIsRefused) {
  for (const std::uint32_t world : {0u, 4097u}) {
    const auto ranks = make_in_process_communicators(world);
    ASSERT_FALSE(ranks.ok());
    EXPECT_EQ(ranks.status().message(), "world: " + std::to_string(world) + " is not in 1..4096");
  }
  EXPECT_EQ(make_in_process_communicators(4096)->size(), 4096u);
}

// Whichever thread is refused brings the other rank, so that the one that was not can go on.
TEST(InProcess, SecondCallOfARankThatIsInOneIsRefused) {
  const Ranks ranks = *make_in_process_communicators(2);
  std::atomic<int> refused{0};
  const auto call = [&] {
    const Status status = ranks[0]->barrier();
    if (status.ok()) return;
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_EQ(status.message(), "rank 0: barrier called while a barrier is under way");
    ++refused;
    EXPECT_TRUE(ranks[1]->barrier().ok());
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(refused, 1);
}

TEST(InProcess, ForkedChildIsRefusedAndItsDestructorsDoNothing) {
  Ranks ranks = *make_in_process_communicators(2);
  std::thread peer([&] { EXPECT_TRUE(ranks[1]->barrier().ok()); });
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool refused = ranks[0]->barrier().code() == Code::kForked;
    ranks.clear();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(ranks[0]->barrier().ok());
  peer.join();
}

}  // namespace
}  // namespace sluice
