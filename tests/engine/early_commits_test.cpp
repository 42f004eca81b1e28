#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "engine/early_engine.hpp"
#include "support/after_crash.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::IsOk;
using testing::HasSubstr;

/// A store that keeps a commit, so that slots are scarce while one is in flight.
class EarlyAboveCommits : public sim::EarlyTest {
 protected:
  EarlyAboveCommits() {
    options.keep_commits = 1;
    options.max_user_bytes = 100;
  }
  void open_again() {
    engine.reset();
    open(kNoSpill + 2 * (64 << 10));
  }
  void open_empty() {
    engine.reset();
    std::filesystem::remove_all(options.directories.front());
    std::filesystem::create_directory(options.directories.front());
    open_again();
  }

  /// All that may happen while a commit's flush goes on.
  void turn_beside_the_flush() {
    while (house.world.next_due_ns() < house.world.now_ns() + kSlowNs / 2) turn();
  }
  enum class Order : std::uint8_t { kLastFirst, kFirstFirst };
  void give_all(Pass& pass, std::uint64_t salt, Order order) {
    if (order == Order::kLastFirst) return backward(pass, salt);
    for (std::size_t i = 0; i < kCount; ++i) give(pass, it[i], values(i, salt));
  }
  /// A store in which one step found room above the commit in flight: the next one finds no slot.
  CommitTicket commit_without_a_slot_left(Order order = Order::kLastFirst) {
    slow(io::Op::kFlush);
    open_empty();
    train_early();
    EXPECT_THAT(engine->commit({}, CommitMode::kWait), IsOk());
    train_early();
    Result<CommitTicket> ticket = engine->commit();
    EXPECT_THAT(ticket, IsOk());
    Pass above = begin();
    give_all(above, 20, order);
    step(above);
    EXPECT_FALSE(ticket->done());
    return std::move(ticket).value();
  }
  Pass begin(const StepOptions& step_options = {}) {
    read_before_ = records_read();
    return EarlyTest::begin(step_options);
  }
  /// Has as many updates wait for a slot as there are record frames.
  void wait_for_slots(Pass& pass) {
    const std::uint64_t written = records_written();
    backward(pass, 21);
    turn_beside_the_flush();
    EXPECT_EQ(records_read() - read_before_, 3 * kRecord);
    EXPECT_EQ(records_written(), written);
  }

 private:
  std::uint64_t read_before_ = 0;  // the last pass
};

TEST_F(EarlyAboveCommits, TakeTheSlotsThatOneStepMayTake) {
  open_again();
  for (std::uint64_t number = 0; number < 4; ++number) {
    const Result<CommitTicket> ticket = engine->commit();
    ASSERT_THAT(ticket, IsOk());
    for (int above = 0; above < 3; ++above) train_early();
    EXPECT_THAT(ticket->wait(), IsOk());
  }
  EXPECT_EQ(engine->stats().early_updates, 12 * kCount);
  const auto before = states();
  EXPECT_THAT(engine->commit({}, CommitMode::kWait), IsOk());
  EXPECT_THAT(engine->close(), IsOk());
  open_again();
  EXPECT_EQ(states(), before);
}

TEST_F(EarlyAboveCommits, WaitForTheCommitInFlightAndNobodyIsCountedAsWaitingUntilStep) {
  slow(io::Op::kFlush);
  open_again();
  train_early();
  EXPECT_THAT(engine->commit({}, CommitMode::kWait), IsOk());
  train_early();
  const Result<CommitTicket> ticket = engine->commit();
  ASSERT_THAT(ticket, IsOk());
  // One step goes above the commit, the next one finds no slot.
  for (std::uint64_t number = 0; number < 2; ++number) {
    const std::uint64_t read = records_read(), written = records_written();
    const double waited = engine->stats().commit_wait_seconds;
    Pass pass = begin();
    backward(pass, number);
    turn_beside_the_flush();
    ASSERT_FALSE(ticket->done());
    if (number == 0) {
      EXPECT_EQ(records_written() - written, kCount * kRecord);
    } else {
      EXPECT_EQ(records_read() - read, 3 * kRecord);  // as many as there are frames
      EXPECT_EQ(records_written(), written);
    }
    EXPECT_EQ(engine->stats().commit_wait_seconds, waited);
    step(pass);
    EXPECT_EQ(engine->stats().commit_wait_seconds > waited, number == 1);
  }
  EXPECT_THAT(ticket->wait(), IsOk());
  EXPECT_EQ(engine->stats().redone_updates, 0U);
}

TEST_F(EarlyAboveCommits, AnAbortDoesNotWaitForTheCommit) {
  for (const bool dropped : {false, true}) {
    const CommitTicket ticket = commit_without_a_slot_left();
    const auto before = states();
    const double waited = engine->stats().commit_wait_seconds;
    {
      Pass pass = begin();
      wait_for_slots(pass);
      if (!dropped) {
        EXPECT_THAT(pass.abort(), IsOk());
      }
    }
    EXPECT_EQ(states(), before);
    EXPECT_FALSE(ticket.done());
    EXPECT_EQ(engine->stats().commit_wait_seconds, waited);
    EXPECT_THAT(ticket.wait(), IsOk());
    train_early();
    expect_no_slot_lost();
  }
}

TEST_F(EarlyAboveCommits, ASkippedStepDoesNotWaitForTheCommit) {
  const CommitTicket ticket = commit_without_a_slot_left();
  const auto before = states();
  const double waited = engine->stats().commit_wait_seconds;
  Pass pass = begin({.micro_batches = 2});
  backward(pass, 20);
  wait_for_slots(pass);
  give(pass, it[0], Values(kChunk, NAN));
  EXPECT_TRUE(step(pass).skipped);
  EXPECT_FALSE(ticket.done());
  EXPECT_EQ(engine->stats().wrong_guesses, 1U);
  EXPECT_EQ(engine->stats().commit_wait_seconds, waited);
  EXPECT_EQ(states(), before);
  EXPECT_FALSE(ticket.done());
  EXPECT_THAT(ticket.wait(), IsOk());
  expect_no_slot_lost();
}

TEST_F(EarlyAboveCommits, AGradientThatWasNotExpectedFreesTheFrameOfAnUpdateThatWaits) {
  std::vector<std::vector<Values>> expected;
  for (const bool waits : {false, true}) {
    const CommitTicket ticket = commit_without_a_slot_left();
    if (!waits) {
      EXPECT_THAT(ticket.wait(), IsOk());
    }
    Pass pass = begin();
    if (waits)
      wait_for_slots(pass);
    else
      backward(pass, 21);
    const std::uint64_t read = records_read();
    give(pass, it[5], values(5, 22));
    if (waits) {
      turn_beside_the_flush();
      EXPECT_EQ(records_read() - read, kRecord);  // of the next one
      EXPECT_FALSE(ticket.done());
    }
    step(pass);
    EXPECT_GT(engine->stats().redone_updates, 0U);
    if (waits)
      EXPECT_EQ(states(), expected);
    else
      expected = states();
    EXPECT_THAT(ticket.wait(), IsOk());
    expect_no_slot_lost();
  }
}

TEST_F(EarlyAboveCommits, AWrongGuessMakesAgainWhatWaits) {
  std::vector<std::vector<Values>> expected;
  for (const bool waits : {false, true}) {
    const CommitTicket ticket = commit_without_a_slot_left(Order::kFirstFirst);
    if (!waits) {
      EXPECT_THAT(ticket.wait(), IsOk());
    }
    Pass pass = begin();
    // Those that wait come first: the frames that they leave must not go to what is as wrong.
    give_all(pass, 21, Order::kFirstFirst);
    if (waits) turn_beside_the_flush();
    const double waited = engine->stats().commit_wait_seconds;
    EXPECT_THAT(pass.step({.loss_scale = 4}), IsOk());
    EXPECT_EQ(engine->stats().commit_wait_seconds > waited, waits);
    EXPECT_EQ(engine->stats().wrong_guesses, 1U);
    if (waits) {
      EXPECT_EQ(engine->stats().redone_updates, 3U);
      EXPECT_EQ(states(), expected);
    } else {
      expected = states();
    }
    EXPECT_THAT(ticket.wait(), IsOk());
    expect_no_slot_lost();
  }
}

TEST_F(EarlyAboveCommits, AnEngineEndsWithThemWaiting) {
  for (const bool close : {false, true}) {
    {
      const CommitTicket ticket = commit_without_a_slot_left();
      Pass pass = begin();
      wait_for_slots(pass);
      if (close) {
        EXPECT_THAT(engine->close(), IsOk());
        EXPECT_TRUE(ticket.done());
      }
      engine.reset();
    }
    open_again();
    ASSERT_TRUE(report.recovered.has_value());
    EXPECT_EQ(report.recovered->commit, 2U);
    train_early();
    expect_no_slot_lost();
  }
}

TEST_F(EarlyAboveCommits, ACommitThatBreaksWhileTheyWaitIsToldOnce) {
  const CommitTicket ticket = commit_without_a_slot_left();
  Pass pass = begin();
  wait_for_slots(pass);
  house.backend->faults().add({.op = io::Op::kFlush, .error = EIO});
  EXPECT_THAT(ticket.wait(), Fails(Code::kIoError, HasSubstr("flush")));
  EXPECT_THAT(pass.step(), Fails(Code::kIoError, HasSubstr("flush")));
  house.backend->faults().clear();
  (void)engine->close();
  house.drive_options.delay_ns = nullptr;
  open_again();
  ASSERT_TRUE(report.recovered.has_value());
  train_early();
  expect_no_slot_lost();
}

TEST_F(EarlyAboveCommits, AnAbortAtAnyMomentLeavesEveryBitAndNoSlotTaken) {
  for (int turns = 0; turns < 90; turns += 3) {
    SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={} after {} turns", house.world.seed(), turns));
    if (turns % 30 == 0) {
      open_empty();
      train_early();
    }
    const Result<CommitTicket> ticket = engine->commit();
    ASSERT_THAT(ticket, IsOk());
    Pass above = begin();
    backward(above, 1);
    step(above);
    const auto before = states();
    Pass pass = begin();
    for (std::size_t i = kCount; i-- > 0;) {
      give(pass, it[i], values(i, 2));
      turn(turns / static_cast<int>(kCount));
    }
    turn(turns % static_cast<int>(kCount));
    EXPECT_THAT(pass.abort(), IsOk());
    ASSERT_EQ(states(), before);
    EXPECT_THAT(ticket->wait(), IsOk());
    expect_no_slot_lost();
    if (HasFailure()) return;
  }
}

TEST_F(EarlyAboveCommits, ACrashInTheirMiddleLeavesTheCommitWhole) {
  for (const sim::Crash kind : {sim::Crash::kProcessKilled, sim::Crash::kPowerLost})
    for (int turns = 0; turns < 80; turns += 8) {
      SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={} after {} turns", house.world.seed(), turns));
      open_empty();
      train_early();
      EXPECT_THAT(engine->commit({}, CommitMode::kWait), IsOk());
      const auto committed = states();
      train_early();
      {
        Pass pass = begin();
        backward(pass, 7);
        turn(turns);
        house.backend->crash(kind);
        (void)pass.step();  // is made where all updates had ended: what it changes is not durable
      }
      const sim::TemporaryDirectory copy;
      sim::copy_after_crash(options.directories.front(), copy.path());
      engine.reset();
      const std::vector<std::string> own = std::exchange(options.directories, {copy.path()});
      open_again();
      ASSERT_TRUE(report.recovered.has_value());
      EXPECT_EQ(states(), committed);
      train_early();
      expect_no_slot_lost();
      engine.reset();
      options.directories = own;
      if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace sluice
