#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "engine/rank_commits.hpp"
#include "support/after_crash.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::IsOk;
using sim::Rank;
using sim::RankCommitsTest;
using sim::Whole;
using testing::AnyOf;
using testing::HasSubstr;

TEST_F(RankCommitsTest, BringBackEveryRanksState) {
  Whole expected = make_whole(), whole = make_whole();
  std::mutex mutex;
  on_ranks(3, [&](Rank& rank) {
    train(rank, 1);
    EXPECT_THAT(rank.engine->commit(user_bytes(rank.rank, 1), CommitMode::kWait), IsOk());
    {
      std::lock_guard lock(mutex);
      rank.read_into(expected, tensors_);
    }
    train(rank, 2);  // not committed
  });
  on_unsealed(3, [&](Rank& rank) {
    rank.parameters = add_all(*rank.engine);
    const Result<SealReport> report = rank.engine->seal();
    ASSERT_THAT(report, IsOk());
    ASSERT_TRUE(report->recovered.has_value());
    EXPECT_FALSE(report->recovered->rewritten);
    EXPECT_EQ(report->recovered->user_bytes, user_bytes(rank.rank, 1));
    std::lock_guard lock(mutex);
    rank.read_into(whole, tensors_);
  });
  EXPECT_EQ(whole, expected);
}

TEST_F(RankCommitsTest, EveryWorldKeepsEveryBit) {
  tensors_.push_back({"frozen", 700, {.policy = Policy::kFrozen}});
  Whole expected = make_whole();
  std::mutex mutex;
  on_ranks(4, [&](Rank& rank) {
    for (std::uint64_t salt = 1; salt < 4; ++salt) train(rank, salt);
    EXPECT_THAT(rank.engine->commit(user_bytes(rank.rank, 9), CommitMode::kWait), IsOk());
    std::lock_guard lock(mutex);
    rank.read_into(expected, tensors_);
  });
  std::uint32_t before = 4;
  for (const std::uint32_t world : {3U, 1U, 8U, 2U}) {
    Whole whole = make_whole();
    on_unsealed(world, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      const Result<SealReport> report = rank.engine->seal();
      ASSERT_THAT(report, IsOk());
      ASSERT_TRUE(report->recovered.has_value());
      EXPECT_TRUE(report->recovered->rewritten);
      EXPECT_EQ(report->recovered->step, 3U);
      EXPECT_EQ(report->recovered->user_bytes[1], std::byte{9});
      std::lock_guard lock(mutex);
      rank.read_into(whole, tensors_);
    });
    EXPECT_EQ(whole, expected) << "world " << before << " -> " << world;
    before = world;
    const auto stores = std::filesystem::directory_iterator(directory_.path());
    EXPECT_EQ(std::distance(begin(stores), end(stores)), 1) << "the old store is still there";
  }
}

TEST_F(RankCommitsTest, RanksThatOwnNothingTakePart) {
  tensors_ = {{"small", 10}};
  Whole expected = make_whole(), whole = make_whole();
  std::mutex mutex;
  on_ranks(3, [&](Rank& rank) {
    train(rank, 1);
    EXPECT_THAT(rank.engine->commit(user_bytes(rank.rank, 1), CommitMode::kWait), IsOk());
    std::lock_guard lock(mutex);
    rank.read_into(expected, tensors_);
  });
  for (const std::uint32_t world : {3U, 2U, 1U}) {
    on_unsealed(world, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      const Result<SealReport> report = rank.engine->seal();
      ASSERT_THAT(report, IsOk());
      ASSERT_TRUE(report->recovered.has_value());
      EXPECT_EQ(report->recovered->user_bytes, user_bytes(rank.rank, 1));
      std::lock_guard lock(mutex);
      rank.read_into(whole, tensors_);
    });
    EXPECT_EQ(whole, expected) << "world " << world;
  }
}

TEST_F(RankCommitsTest, ThatOneRankCannotWriteAreDroppedOnAllOfThem) {
  Whole expected = make_whole();
  std::mutex mutex;
  on_ranks(3, [&](Rank& rank) {
    train(rank, 1);
    EXPECT_THAT(rank.engine->commit(user_bytes(rank.rank, 1), CommitMode::kWait), IsOk());
    train(rank, 2);
    if (rank.rank == 1)
      rank.drive->faults().add({.op = io::Op::kWrite, .error = ENOSPC, .skip = 0, .count = 1});
    const Result<CommitTicket> ticket = rank.engine->commit(user_bytes(rank.rank, 2));
    ASSERT_THAT(ticket, IsOk());
    if (rank.rank == 2) {
      EXPECT_THAT(ticket->wait(), Fails(Code::kAborted, HasSubstr("rank 1")));
    }
    // Each rank hears of it in the same call, whether it has waited or not.
    EXPECT_THAT(
        rank.engine->commit(user_bytes(rank.rank, 3)),
        AnyOf(Fails(Code::kAborted, HasSubstr("rank 1")), Fails(Code::kNoSpace, HasSubstr("commit 2"))));
    train(rank, 3);
    EXPECT_THAT(rank.engine->commit(user_bytes(rank.rank, 4), CommitMode::kWait), IsOk());
    std::lock_guard lock(mutex);
    rank.read_into(expected, tensors_);
  });
  EXPECT_EQ(state(3), expected);
}

TEST_F(RankCommitsTest, WithARefusedRankFailOnAllOfThem) {
  on_ranks(2, [&](Rank& rank) {
    train(rank, 1);
    EXPECT_THAT(rank.engine->commit(std::vector<std::byte>(rank.rank == 1 ? 101 : 1), CommitMode::kWait),
                rank.rank == 1 ? testing::Matcher<const Result<CommitTicket>&>(
                                     Fails(Code::kInvalidArgument, HasSubstr("max_user_bytes")))
                               : Fails(Code::kAborted, HasSubstr("rank 1")));
    EXPECT_THAT(rank.engine->commit({}, CommitMode::kWait), IsOk());
  });
}

TEST_F(RankCommitsTest, AMissingRankIsNamed) {
  on_ranks(3, [&](Rank& rank) {
    train(rank, 1);
    EXPECT_THAT(rank.engine->commit({}, CommitMode::kWait), IsOk());
  });
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path()))
    if (entry.path().filename() == "rank-00001") {
      std::filesystem::remove_all(entry.path());
      break;
    }
  on_unsealed(3, [&](Rank& rank) {
    rank.parameters = add_all(*rank.engine);
    EXPECT_THAT(rank.engine->seal(), Fails(Code::kDataLoss, HasSubstr("rank 1")));
  });
}

/// A rank's drive is gone from its n-th request on, for every n and every rank.
class RankCrash : public RankCommitsTest,
                  public testing::WithParamInterface<std::tuple<std::uint32_t, io::Op>> {};

TEST_P(RankCrash, AtAnyRequestLeavesACommitThatEveryRankHolds) {
  const auto [crashing, op] = GetParam();
  constexpr std::uint32_t kWorld = 2;
  tensors_ = {{"small", 10}, {"large", 40'000}};
  bool hit = true;
  for (std::uint64_t skip = 0; hit; ++skip) {
    SCOPED_TRACE("rank " + std::to_string(crashing) + " at request " + std::to_string(skip));
    const sim::TemporaryDirectory live, dead;
    options_.directories = {live.path()};
    std::vector<Whole> committed(1, make_whole());  // by number
    std::atomic<std::uint64_t> durable = 0;
    std::mutex mutex;
    hit = false;
    on_unsealed(kWorld, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      const Result<SealReport> sealed = rank.engine->seal();
      if (!sealed.ok()) return;
      if (rank.rank == crashing) {
        for (const io::Op gone : {io::Op::kRead, io::Op::kWrite, io::Op::kFlush})
          if (gone == op) rank.drive->faults().add({.op = gone, .error = EIO, .skip = skip});
      }
      for (std::uint64_t number = 1; number < 4; ++number) {
        Result<Pass> pass = rank.engine->begin_step();
        if (!pass.ok()) break;
        bool given = true;
        for (std::size_t at = 0; at < tensors_.size() && given; ++at) {
          const std::vector<float> values = gradient(tensors_[at], number);
          given = pass->add_gradient(rank.parameters[at],
                                     rank.rank == 0 ? Gradient::f32(values.data()) : Gradient::none())
                      .ok();
        }
        if (!given || !pass->step().ok()) break;
        {
          std::lock_guard lock(mutex);
          if (committed.size() <= number) committed.resize(number + 1, make_whole());
          rank.read_into(committed[number], tensors_);
        }
        if (!rank.engine->commit({}, CommitMode::kWait).ok()) break;
        durable = std::max(durable.load(), number);
      }
      if (rank.rank == crashing && rank.drive->faults().hits() > 0) hit = true;
      (void)rank.engine->close();
    });
    if (testing::Test::HasFailure()) return;
    Whole whole = make_whole();
    std::optional<std::uint64_t> recovered;
    on_unsealed(kWorld, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      const Result<SealReport> report = rank.engine->seal();
      ASSERT_THAT(report, IsOk());
      std::lock_guard lock(mutex);
      if (report->recovered) recovered = report->recovered->commit;
      rank.read_into(whole, tensors_);
    });
    EXPECT_GE(recovered.value_or(0), durable.load());
    if (recovered) {
      ASSERT_LT(*recovered, committed.size());
      EXPECT_EQ(whole, committed[*recovered]);
    }
    if (testing::Test::HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, RankCrash,
                         testing::Combine(testing::Values(0U, 1U),
                                          testing::Values(io::Op::kWrite, io::Op::kFlush)));

}  // namespace
}  // namespace sluice
