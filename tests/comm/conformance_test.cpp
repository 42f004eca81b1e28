// What every communicator does; each kind adds a way to make its ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <random>
#include <vector>

#include "ranks.hpp"
#include "sluice/communicator.hpp"

namespace sluice {
namespace {

struct Kind {
  const char* name;
  std::function<Ranks()> make;
};

class CommunicatorConformance : public ::testing::TestWithParam<Kind> {
 protected:
  const Ranks ranks_ = GetParam().make();
  const std::uint32_t world_ = static_cast<std::uint32_t>(ranks_.size());
};

// What `source` gives to `target` in one round.
std::vector<std::byte> pattern(std::uint32_t source, std::uint32_t target, std::uint64_t round,
                               std::uint64_t bytes) {
  std::vector<std::byte> data(bytes);
  const std::uint64_t first = source * 131 + target * 17 + round * 7;
  for (std::uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((first + i) & 0xFF);
  return data;
}

TEST_P(CommunicatorConformance, RanksAreNumberedInOrder) {
  for (std::uint32_t r = 0; r < world_; ++r) {
    EXPECT_EQ(ranks_[r]->rank(), r);
    EXPECT_EQ(ranks_[r]->world(), world_);
  }
}

TEST_P(CommunicatorConformance, AllGatherBringsEveryShardOfEveryTensorToEveryRank) {
  const std::uint64_t shard_bytes[] = {1, 0, 256, 4096 * 3 + 5, 0, 100000};
  on_every_rank(ranks_, [&](Communicator& rank) {
    std::vector<std::vector<std::byte>> buffers, expected;
    std::vector<GatheredShards> tensors;
    for (const std::uint64_t bytes : shard_bytes) {
      std::vector<std::byte>& buffer = buffers.emplace_back(bytes * world_, std::byte{0xFF});
      std::ranges::copy(pattern(rank.rank(), 0, bytes, bytes),
                        buffer.begin() + static_cast<std::ptrdiff_t>(rank.rank() * bytes));
      tensors.push_back({.base = bytes == 0 ? nullptr : buffer.data(), .shard_bytes = bytes});
      std::vector<std::byte>& whole = expected.emplace_back();
      for (std::uint32_t source = 0; source < world_; ++source)
        std::ranges::copy(pattern(source, 0, bytes, bytes), std::back_inserter(whole));
    }
    const Status status = rank.all_gather(tensors);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(buffers == expected) << "rank " << rank.rank();
  });
}

TEST_P(CommunicatorConformance, AllGatherOfNothingIsACall) {
  on_every_rank(ranks_, [&](Communicator& rank) { EXPECT_TRUE(rank.all_gather({}).ok()); });
}

TEST_P(CommunicatorConformance, AllToAllDeliversLengthsThatDifferByPair) {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<std::vector<std::uint64_t>> bytes(world_,
                                                  std::vector<std::uint64_t>(world_));  // [source][target]
    for (auto& row : bytes)
      for (std::uint64_t& b : row) b = random() % 3 == 0 ? 0 : random() % 5000;
    on_every_rank(ranks_, [&](Communicator& rank) {
      const std::uint32_t self = rank.rank();
      std::vector<std::vector<std::byte>> sent(world_), received(world_);
      std::vector<std::span<const std::byte>> sends;
      std::vector<std::span<std::byte>> receives;
      for (std::uint32_t peer = 0; peer < world_; ++peer) {
        sent[peer] = pattern(self, peer, seed, bytes[self][peer]);
        received[peer].resize(bytes[peer][self]);
        sends.emplace_back(sent[peer]);
        receives.emplace_back(received[peer]);
      }
      const Status status = rank.all_to_all(sends, receives);
      EXPECT_TRUE(status.ok()) << status.to_string();
      for (std::uint32_t peer = 0; peer < world_; ++peer)
        EXPECT_TRUE(received[peer] == pattern(peer, self, seed, bytes[peer][self])) << peer << " to " << self;
    });
  }
}

TEST_P(CommunicatorConformance, NobodyPassesABarrierBeforeAllHaveComeToIt) {
  std::atomic<std::uint32_t> arrived{0};
  on_every_rank(ranks_, [&](Communicator& rank) {
    for (std::uint32_t round = 1; round <= 100; ++round) {
      ++arrived;
      ASSERT_TRUE(rank.barrier().ok());
      ASSERT_GE(arrived.load(), round * world_);
      ASSERT_TRUE(rank.barrier().ok());
    }
  });
}

// Buffers are written again right after each call: a peer that still reads them would see the next round's
// values.
TEST_P(CommunicatorConformance, ThousandsOfCallsKeepRoundsApart) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    std::vector<std::uint64_t> gathered(world_), sent(world_), received(world_);
    const GatheredShards tensor{reinterpret_cast<std::byte*>(gathered.data()), sizeof(std::uint64_t)};
    std::vector<std::span<const std::byte>> sends;
    std::vector<std::span<std::byte>> receives;
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      sends.push_back(std::as_bytes(std::span(&sent[peer], 1)));
      receives.push_back(std::as_writable_bytes(std::span(&received[peer], 1)));
    }
    for (std::uint64_t round = 0; round < 2000; ++round) {
      gathered[rank.rank()] = round * 1000 + rank.rank();
      ASSERT_TRUE(rank.all_gather({&tensor, 1}).ok());
      for (std::uint64_t peer = 0; peer < world_; ++peer) ASSERT_EQ(gathered[peer], round * 1000 + peer);
      std::fill(sent.begin(), sent.end(), round * 1000 + rank.rank());
      ASSERT_TRUE(rank.all_to_all(sends, receives).ok());
      for (std::uint64_t peer = 0; peer < world_; ++peer) ASSERT_EQ(received[peer], round * 1000 + peer);
    }
  });
}

TEST_P(CommunicatorConformance, DuplicateNeedsNoAgreementWithItsOriginal) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    Result<std::shared_ptr<Communicator>> copy = rank.duplicate();
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    EXPECT_EQ((*copy)->rank(), rank.rank());
    EXPECT_EQ((*copy)->world(), world_);
    // Every second rank uses the duplicate first, on a thread of its own.
    std::thread other([&] { EXPECT_TRUE((*copy)->barrier().ok()); });
    if (rank.rank() % 2 == 0) other.join();
    EXPECT_TRUE(rank.barrier().ok());
    if (other.joinable()) other.join();
  });
}

TEST_P(CommunicatorConformance, AbortOfADuplicateLeavesTheOriginalUsable) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    Result<std::shared_ptr<Communicator>> copy = rank.duplicate();
    ASSERT_TRUE(copy.ok());
    (*copy)->abort(Status(Code::kIoError, "a drive is gone"));
    EXPECT_EQ((*copy)->barrier().code(), Code::kUnavailable);
    EXPECT_TRUE(rank.barrier().ok());
  });
}

TEST_P(CommunicatorConformance, AbortIsStickyForEveryCallAndNamesTheCause) {
  ranks_.back()->abort(Status(Code::kIoError, "a drive is gone", 5));
  ranks_.back()->abort(Status(Code::kInternal, "a later cause"));
  on_every_rank(ranks_, [&](Communicator& rank) {
    const std::vector<std::span<const std::byte>> sends(world_);
    const std::vector<std::span<std::byte>> receives(world_);
    for (const Status& status : {rank.barrier(), rank.all_gather({}), rank.all_to_all(sends, receives),
                                 rank.duplicate().status(), rank.barrier()}) {
      EXPECT_EQ(status.code(), Code::kUnavailable);
      EXPECT_NE(status.message().find("a drive is gone"), std::string::npos) << status.message();
    }
  });
}

TEST_P(CommunicatorConformance, WrongCountsAreInvalidOnEveryRankAndTheNextCallWorks) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    const std::vector<std::span<const std::byte>> sends(world_ + 1);
    const std::vector<std::span<std::byte>> receives(world_);
    const Status status = rank.all_to_all({sends.data(), rank.rank() == 0 ? world_ + 1 : world_}, receives);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_TRUE(rank.barrier().ok());
  });
}

TEST_P(CommunicatorConformance, LengthsToOneselfMustAgreeToo) {
  std::byte data[2] = {};
  on_every_rank(ranks_, [&](Communicator& rank) {
    std::vector<std::span<const std::byte>> sends(world_);
    const std::vector<std::span<std::byte>> receives(world_);
    if (rank.rank() == 0) sends[0] = data;
    EXPECT_EQ(rank.all_to_all(sends, receives).code(), Code::kInvalidArgument);
  });
}

TEST_P(CommunicatorConformance, NullBaseWithBytesIsInvalidOnEveryRank) {
  on_every_rank(ranks_, [&](Communicator& rank) {
    std::vector<std::byte> buffer(world_ * 8);
    const GatheredShards tensor{rank.rank() == 0 ? nullptr : buffer.data(), 8};
    EXPECT_EQ(rank.all_gather({&tensor, 1}).code(), Code::kInvalidArgument);
    EXPECT_TRUE(rank.barrier().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CommunicatorConformance,
    ::testing::Values(Kind{"Single", [] { return Ranks{make_single_communicator()}; }},
                      Kind{"InProcess1", [] { return *make_in_process_communicators(1); }},
                      Kind{"InProcess2", [] { return *make_in_process_communicators(2); }},
                      Kind{"InProcess3", [] { return *make_in_process_communicators(3); }},
                      Kind{"InProcess5", [] { return *make_in_process_communicators(5); }}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace sluice
