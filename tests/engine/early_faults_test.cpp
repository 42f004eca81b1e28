#include <fmt/format.h>

#include <cerrno>

#include "engine/early_engine.hpp"
#include "support/after_crash.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::Fault;
using sim::IsOk;
using testing::AllOf;
using testing::HasSubstr;

class EarlyFaults : public sim::EarlyTest {
 protected:
  sim::FaultPlan& faults() { return house.backend->faults(); }
};

struct Failure {
  io::Op op;
  int error;
};

// The same script on a drive that fails at one request after the other of what is done early.
TEST_F(EarlyFaults, OnceAreMadeGoodByTheStep) {
  for (const Failure failure :
       {Failure{io::Op::kRead, EIO}, {io::Op::kWrite, EIO}, {io::Op::kWrite, ENOSPC}}) {
    std::uint64_t redone = 0;
    for (std::uint64_t skip = 0; skip < kCount; ++skip) {
      SCOPED_TRACE(fmt::format("{} request {} fails with {}", failure.op == io::Op::kRead ? "read" : "write",
                               skip, failure.error));
      expect_the_bits_of_serial_steps([&] {
        Pass pass = begin();
        if (options.undo == Undo::kOn)
          faults().add({.op = failure.op, .error = failure.error, .skip = skip, .count = 1});
        backward(pass);
        let_all_happen();
        step(pass);
        faults().clear();
        redone = std::max(redone, engine->stats().redone_updates);
        EXPECT_EQ(engine->stats().wrong_guesses, 0U);
      });
      if (HasFailure()) return;
    }
    EXPECT_GT(redone, 0U);
  }
}

TEST_F(EarlyFaults, ThatLastAreToldByTheStepAlone) {
  for (const io::Op op : {io::Op::kRead, io::Op::kWrite}) {
    open();
    train_early();
    const auto before = states();
    Pass pass = begin();
    faults().add({.op = op, .error = EIO});
    backward(pass, 1);  // expects every call to succeed
    let_all_happen();
    // The first failure is the last that is begun: only those beside it can have met it too.
    EXPECT_LE(faults().hits(), 3U);
    EXPECT_THAT(pass.step(), Fails(Code::kIoError, HasSubstr("'p")));
    faults().clear();
    EXPECT_EQ(states(), before);
    train_early();
    expect_no_slot_lost();
  }
}

TEST_F(EarlyFaults, OfAGradientOnItsWayOutAreToldAsEver) {
  open(kLeast);
  const auto before = states();
  Pass pass = begin();
  faults().add({.op = io::Op::kWrite, .error = EIO});
  Status added;
  for (std::size_t i = kCount; added.ok() && i-- > 0;) {
    const Values gradient = values(i);
    added = pass.add_gradient(it[i], Gradient::f32(gradient.data()));
  }
  let_all_happen();
  EXPECT_THAT(pass.step(), Fails(Code::kIoError, HasSubstr("'p")));
  faults().clear();
  EXPECT_EQ(states(), before);
  expect_no_slot_lost();
}

TEST_F(EarlyFaults, AnAbortAtAnyMomentLeavesEveryBitAndNoSlotTaken) {
  for (const std::uint64_t budget : {kLeast, kNoSpill}) {
    open(budget);
    train_early();
    auto before = states();
    for (int turns = 0; turns < 120; turns += 3) {
      SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={} after {} turns", house.world.seed(), turns));
      {
        Pass pass = begin();
        // The first are old by the time the last comes.
        for (std::size_t i = kCount; i-- > 0;) {
          give(pass, it[i], values(i, 5));
          turn(turns / static_cast<int>(kCount));
        }
        turn(turns % static_cast<int>(kCount));
        if (turns % 2 == 0) {
          EXPECT_THAT(pass.abort(), IsOk());
        }
      }
      ASSERT_EQ(states(), before);
      if (turns % 30 == 0) {
        expect_no_slot_lost();
        before = states();
      }
      if (HasFailure()) return;
    }
    expect_no_slot_lost();
    EXPECT_EQ(engine->stats().wrong_guesses, 0U);
  }
}

TEST_F(EarlyFaults, AnEngineEndsWithThemInFlight) {
  for (int turns = 0; turns < 60; turns += 4) {
    for (const bool close : {false, true}) {
      open();
      Pass pass = begin();
      backward(pass);
      turn(turns);
      if (close) {
        EXPECT_THAT(engine->close(), IsOk());
      }
      engine.reset();
      EXPECT_TRUE(std::filesystem::is_empty(house.directory.path()));
    }
  }
}

TEST_F(EarlyFaults, AStepThatFailsAfterThemLeavesEveryBit) {
  open();
  train_early();
  const auto before = states();
  Pass pass = begin({.micro_batches = 2});
  backward(pass, 1);
  for (const std::size_t i : {5U, 4U, 3U}) give(pass, it[i], values(i, 2));
  let_all_happen();
  faults().add({.op = io::Op::kWrite, .error = EIO, .skip = 1});
  EXPECT_THAT(pass.step(), Fails(Code::kIoError, HasSubstr("write state")));
  faults().clear();
  EXPECT_EQ(states(), before);
  EXPECT_EQ(engine->stats().early_updates, kCount);  // those of the first step
  expect_no_slot_lost();
}

// Another thread's call: it comes while the first one waits for what is under way.
TEST_F(EarlyFaults, ASecondCallThatEndsThePassIsRefusedWhileTheFirstWaits) {
  for (const bool steps_first : {false, true})
    for (const bool steps_second : {false, true})
      for (int turns = 0; turns < 20; turns += 4) {
        SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={} {} then {} after {} turns", house.world.seed(),
                                 steps_first, steps_second, turns));
        open();
        Pass pass = begin();
        backward(pass);
        turn(turns);
        Status first, second;
        bool first_waits = true, met = false;
        house.world.post([&] {
          met = first_waits;
          second = steps_second ? pass.step().status() : pass.abort();
        });
        first = steps_first ? pass.step().status() : pass.abort();
        first_waits = false;
        let_all_happen();
        EXPECT_TRUE(met);
        EXPECT_THAT(first, IsOk());
        EXPECT_THAT(second, Fails(Code::kFailedPrecondition, HasSubstr("pass")));
        EXPECT_EQ(engine->stats().steps, steps_first ? 1U : 0U);
        train_early();
        expect_no_slot_lost();
        if (HasFailure()) return;
      }
}

/// A store that keeps a commit, so that slots are scarce while one is in flight.
class EarlyAboveCommits : public EarlyFaults {
 protected:
  EarlyAboveCommits() {
    options.keep_commits = 1;
    options.max_user_bytes = 100;
  }
  void open_again() {
    engine.reset();
    open(kNoSpill + 2 * (64 << 10));
  }
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
  constexpr std::int64_t kFlushNs = 1'000'000'000;
  house.drive_options.delay_ns = [](const io::Request& request, std::int64_t) {
    return request.op == io::Op::kFlush ? kFlushNs : std::int64_t{1000};
  };
  open_again();
  train_early();
  EXPECT_THAT(engine->commit({}, CommitMode::kWait), IsOk());
  train_early();
  const Result<CommitTicket> ticket = engine->commit();
  ASSERT_THAT(ticket, IsOk());
  // All that may happen while the commit's flush goes on.
  const auto turn_beside_the_flush = [&] {
    while (house.world.next_due_ns() < house.world.now_ns() + kFlushNs / 2) turn();
    ASSERT_FALSE(ticket->done());
  };
  // One step goes above the commit, the next one finds no slot.
  for (std::uint64_t number = 0; number < 2; ++number) {
    const std::uint64_t read = records_read(), written = records_written();
    const double waited = engine->stats().commit_wait_seconds;
    Pass pass = begin();
    backward(pass, number);
    turn_beside_the_flush();
    if (number == 0) {
      EXPECT_EQ(records_written() - written, kCount * kChunk * 12);
    } else {
      EXPECT_EQ(records_read() - read, 3 * kChunk * 12);  // as many as there are frames
      EXPECT_EQ(records_written(), written);
    }
    EXPECT_EQ(engine->stats().commit_wait_seconds, waited);
    step(pass);
    EXPECT_EQ(engine->stats().commit_wait_seconds > waited, number == 1);
  }
  EXPECT_THAT(ticket->wait(), IsOk());
  EXPECT_EQ(engine->stats().redone_updates, 0U);
}

TEST_F(EarlyAboveCommits, ACrashInTheirMiddleLeavesTheCommitWhole) {
  for (const sim::Crash kind : {sim::Crash::kProcessKilled, sim::Crash::kPowerLost})
    for (int turns = 0; turns < 80; turns += 8) {
      SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={} after {} turns", house.world.seed(), turns));
      std::filesystem::remove_all(options.directories.front());
      std::filesystem::create_directory(options.directories.front());
      open_again();
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
