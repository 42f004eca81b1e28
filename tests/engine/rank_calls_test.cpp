#include <atomic>
#include <barrier>
#include <cerrno>
#include <future>

#include "engine/probe.hpp"
#include "engine/rank_commits.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::IsOk;
using sim::Rank;
using sim::RankCommitsTest;
using sim::Whole;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

/// Ranks of one world that do not all do the same.
class RankCallsTest : public RankCommitsTest {
 protected:
  /// One step and a commit, then `body`, whose engines need not close well.
  void after_a_commit(std::uint32_t world, const std::function<void(Rank&)>& body) {
    committed_ = make_whole();
    on_unsealed(world, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      ASSERT_THAT(rank.engine->seal(), IsOk());
      train(rank, 1);
      EXPECT_THAT(rank.engine->commit(user_bytes(rank.rank, 1), CommitMode::kWait), IsOk());
      {
        std::lock_guard lock(mutex_);
        rank.read_into(committed_, tensors_);
      }
      body(rank);
    });
  }
  CommitTicket begin_commit(Rank& rank) {
    const Result<CommitTicket> ticket = rank.engine->commit(user_bytes(rank.rank, 2));
    EXPECT_THAT(ticket, IsOk());
    return ticket.ok() ? *ticket : CommitTicket();
  }

  std::mutex mutex_;
  Whole committed_;
};

TEST_F(RankCallsTest, ALateRankIsWaitedFor) {
  std::promise<void> looked;
  std::future<void> has_looked = looked.get_future();
  after_a_commit(2, [&](Rank& rank) {
    if (rank.rank == 1) has_looked.wait();
    const CommitTicket ticket = begin_commit(rank);
    if (rank.rank == 0) {
      float value = 0;
      EXPECT_THAT(rank.engine->read(rank.parameters[5], View::kMaster, {0, 1}, &value, DType::kF32), IsOk());
      EXPECT_FALSE(ticket.done());
      looked.set_value();
    }
    EXPECT_THAT(ticket.wait(), IsOk());
    EXPECT_THAT(rank.engine->close(), IsOk());
  });
}

TEST_F(RankCallsTest, ARankThatIsDestroyedInsteadOfCommittingFailsTheOthersAndTheCommitBeforeStays) {
  after_a_commit(3, [&](Rank& rank) {
    if (rank.rank == 1) return rank.engine.reset();
    const CommitTicket ticket = begin_commit(rank);
    EXPECT_THAT(ticket.wait(), Fails(Code::kUnavailable, HasSubstr("commit 2")));
    EXPECT_THAT(rank.engine->begin_step(), Fails(Code::kUnavailable, HasSubstr("commit 2")));
  });
  EXPECT_EQ(state(3), committed_);
}

TEST_F(RankCallsTest, ARankThatIsDestroyedWithItsCommitInFlightTakesPartToTheEnd) {
  Whole expected = make_whole();
  after_a_commit(2, [&](Rank& rank) {
    train(rank, 2);
    {
      std::lock_guard lock(mutex_);
      rank.read_into(expected, tensors_);
    }
    const CommitTicket ticket = begin_commit(rank);
    if (rank.rank == 1) rank.engine.reset();
    EXPECT_THAT(ticket.wait(), IsOk());
  });
  EXPECT_EQ(state(2), expected);
}

TEST_F(RankCallsTest, ARankThatBrokeAloneFailsTheOthersCommits) {
  for (const bool in_flight : {false, true}) {
    std::barrier begun(2), broken(2), heard(2);
    after_a_commit(2, [&](Rank& rank) {
      CommitTicket ticket;
      if (rank.rank == 0 && in_flight) ticket = begin_commit(rank);
      begun.arrive_and_wait();
      if (rank.rank == 1) {
        rank.drive->faults().add({.op = io::Op::kFlush, .error = EIO, .count = 1});
        EXPECT_THAT(engine::bare_flushes(*rank.engine), Fails(Code::kIoError, HasSubstr("flush")));
      }
      broken.arrive_and_wait();
      if (rank.rank == 0 && in_flight) {
        EXPECT_THAT(ticket.wait(), Fails(Code::kUnavailable, HasSubstr("commit 2")));
      } else {
        EXPECT_THAT(rank.engine->commit({}, CommitMode::kWait),
                    Fails(rank.rank == 1 ? Code::kIoError : Code::kUnavailable, HasSubstr("")));
      }
      heard.arrive_and_wait();  // before the broken one is destroyed, which would be heard too
    });
    EXPECT_EQ(state(2), committed_);
    std::filesystem::remove_all(directory_.path());
    std::filesystem::create_directory(directory_.path());
  }
}

TEST_F(RankCallsTest, ThatWaitAndOthersThatDoNotHearOfAFailureInTheSameCallAgain) {
  after_a_commit(2, [&](Rank& rank) {
    if (rank.rank == 1) rank.drive->faults().add({.op = io::Op::kWrite, .error = ENOSPC, .count = 1});
    train(rank, 2);
    const auto mode = rank.rank == 0 ? CommitMode::kWait : CommitMode::kBackground;
    const Result<CommitTicket> mixed = rank.engine->commit({}, mode);
    if (rank.rank == 0)
      EXPECT_THAT(mixed, Fails(Code::kAborted, HasSubstr("rank 1")));
    else
      EXPECT_THAT(mixed, IsOk());
    EXPECT_THAT(rank.engine->commit(), AnyOf(Fails(Code::kAborted, HasSubstr("commit 2")),
                                             Fails(Code::kNoSpace, HasSubstr("commit 2"))));
    const Result<CommitTicket> next = rank.engine->commit({}, mode);
    ASSERT_THAT(next, IsOk());
    EXPECT_THAT(next->wait(), IsOk());
    EXPECT_THAT(rank.engine->close(), IsOk());
  });
}

TEST_F(RankCallsTest, ARankInsideAPassDropsTheCommitOnAllAndTheyGoOn) {
  after_a_commit(2, [&](Rank& rank) {
    Pass pass;
    if (rank.rank == 1) {
      Result<Pass> begun = rank.engine->begin_pass("look");
      ASSERT_THAT(begun, IsOk());
      pass = std::move(begun).value();
    }
    EXPECT_THAT(rank.engine->commit({}, CommitMode::kWait),
                rank.rank == 1 ? testing::Matcher<const Result<CommitTicket>&>(
                                     Fails(Code::kFailedPrecondition, HasSubstr("between passes")))
                               : Fails(Code::kAborted, HasSubstr("rank 1")));
    pass = Pass();
    train(rank, 2);
    EXPECT_THAT(rank.engine->commit({}, CommitMode::kWait), IsOk());
    EXPECT_THAT(rank.engine->close(), IsOk());
  });
}

TEST_F(RankCallsTest, RanksWhoseCommitsAreNotTheSameOneAreTold) {
  after_a_commit(2, [&](Rank& rank) {
    CommitTicket ticket;
    if (rank.rank == 0) ticket = begin_commit(rank);  // which rank 1 leaves out
    train(rank, 2);
    if (rank.rank == 1) ticket = begin_commit(rank);
    EXPECT_THAT(ticket.wait(), Fails(Code::kFailedPrecondition, HasSubstr("same order on all ranks")));
    EXPECT_THAT(rank.engine->begin_step(), Fails(Code::kFailedPrecondition, HasSubstr("commit 2")));
  });
  EXPECT_EQ(state(2), committed_);
}

/// A world of one over a real loop, whose calls come from several threads.
class CommitThreadsTest : public RankCommitsTest {};

TEST_F(CommitThreadsTest, ATicketMayBeWaitedForWhileTheEngineCloses) {
  for (int i = 0; i < 8; ++i)
    on_unsealed(1, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      ASSERT_THAT(rank.engine->seal(), IsOk());
      train(rank, 1);
      const Result<CommitTicket> ticket = rank.engine->commit();
      ASSERT_THAT(ticket, IsOk());
      std::thread waiter([&] { EXPECT_THAT(ticket->wait(), IsOk()); });
      std::thread looker([&] {
        while (!ticket->done()) std::this_thread::yield();
      });
      EXPECT_THAT(rank.engine->close(), IsOk());
      waiter.join();
      looker.join();
      EXPECT_THAT(ticket->wait(), IsOk());
    });
}

TEST_F(CommitThreadsTest, TwoThreadsCommitOneAfterTheOther) {
  constexpr std::uint64_t kEach = 15;
  on_unsealed(1, [&](Rank& rank) {
    rank.parameters = add_all(*rank.engine);
    ASSERT_THAT(rank.engine->seal(), IsOk());
    train(rank, 1);
    std::vector<std::uint64_t> numbers;
    std::mutex mutex;
    const auto commit_often = [&](CommitMode mode) {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const Result<CommitTicket> ticket = rank.engine->commit({}, mode);
        ASSERT_THAT(ticket, IsOk());
        std::lock_guard lock(mutex);
        numbers.push_back(ticket->number());
      }
    };
    std::thread other([&] { commit_often(CommitMode::kWait); });
    commit_often(CommitMode::kBackground);
    other.join();
    std::ranges::sort(numbers);
    ASSERT_EQ(numbers.size(), 2 * kEach);
    for (std::uint64_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i + 1);
    EXPECT_THAT(rank.engine->close(), IsOk());
    EXPECT_EQ(rank.engine->stats().commits, 2 * kEach);
  });
}

}  // namespace
}  // namespace sluice
