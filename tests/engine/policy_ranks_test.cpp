#include <algorithm>

#include "engine/policy_engine.hpp"
#include "engine/rank_commits.hpp"

namespace sluice {
namespace {

using sim::IsOk;
using sim::Rank;
using sim::RankCommitsTest;
using sim::Whole;

/// Parameters of every policy and rule, of sizes that leave some ranks a part of a granule or nothing.
class PolicyRanks : public RankCommitsTest {
 protected:
  PolicyRanks() {
    constexpr std::uint64_t kSizes[] = {257, 1000, 40'000, 1, 0};
    tensors_.clear();
    for (const sim::PolicyCase& one : sim::policy_cases())
      tensors_.push_back({one.name(),
                          kSizes[tensors_.size() % std::size(kSizes)],
                          {.name = one.name(), .policy = one.policy, .optimizer = one.optimizer}});
  }
};

TEST_F(PolicyRanks, OfAnyNumberHoldTheSameBits) {
  std::vector<Whole> wholes;
  for (const std::uint32_t world : {1U, 2U, 3U}) {
    Whole whole = make_whole();
    std::mutex mutex;
    on_ranks(world, [&](Rank& rank) {
      for (std::uint64_t step = 0; step < 3; ++step) train(rank, step);
      std::lock_guard lock(mutex);
      rank.read_into(whole, tensors_);
    });
    wholes.push_back(std::move(whole));
    std::filesystem::remove_all(directory_.path());
    std::filesystem::create_directory(directory_.path());
  }
  EXPECT_TRUE(wholes[1] == wholes[0]) << "two ranks";
  EXPECT_TRUE(wholes[2] == wholes[0]) << "three ranks";
  EXPECT_EQ(wholes[0].counts, std::vector<std::uint64_t>(tensors_.size(), 3));
}

TEST_F(PolicyRanks, KeepEveryBitWhenAnotherWorldGoesOn) {
  Whole expected = make_whole();
  std::mutex mutex;
  on_ranks(3, [&](Rank& rank) {
    train(rank, 1);
    EXPECT_THAT(rank.engine->commit({}, CommitMode::kWait), IsOk());
    std::lock_guard lock(mutex);
    rank.read_into(expected, tensors_);
  });
  EXPECT_TRUE(state(2) == expected) << "from three ranks to two";
  options_.chunk_elements = 2 * sim::kRankChunk;
  EXPECT_TRUE(state(4) == expected) << "from two ranks to four, in other chunks";
}

}  // namespace
}  // namespace sluice
