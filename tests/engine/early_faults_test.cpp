#include <fmt/format.h>

#include <cerrno>

#include "engine/early_engine.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::Fault;
using sim::IsOk;
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

}  // namespace
}  // namespace sluice
