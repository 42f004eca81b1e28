#include <algorithm>
#include <cerrno>

#include "engine/early_engine.hpp"

namespace sluice {
namespace {

using sim::IsOk;

class EarlyReadAhead : public sim::EarlyTest {
 protected:
  /// An engine that has seen one step.
  void open_and_train(std::uint64_t host_budget_bytes = kNoSpill) {
    open(host_budget_bytes);
    train_early();
    at_seal = engine->stats();
  }
  std::uint64_t early() const { return engine->stats().early_updates - at_seal.early_updates; }
};

TEST_F(EarlyReadAhead, FillsTheFramesBeforeTheGradientsComeAndReadsEachRecordOnce) {
  for (const std::uint64_t budget : {kLeast, kNoSpill}) {
    open_and_train(budget);
    Pass pass = begin();
    let_all_happen();
    const std::uint64_t frames = records_read() / kRecord;
    EXPECT_EQ(frames, 3U);  // all that these budgets give
    EXPECT_EQ(records_written(), 0U);
    std::uint64_t given = 0;
    for (std::size_t i = kCount; i-- > 0;) {
      give(pass, it[i], values(i, 3));
      ++given;
      let_all_happen();
      // Right guesses: each was there, and the next took its frame.
      EXPECT_EQ(records_written(), given * kRecord);
      EXPECT_EQ(records_read(), std::min<std::uint64_t>(kCount, frames + given) * kRecord);
    }
    step(pass);
    EXPECT_EQ(early(), kCount);
    EXPECT_EQ(records_read(), kCount * kRecord);
    EXPECT_EQ(records_written(), kCount * kRecord);
  }
}

TEST_F(EarlyReadAhead, GoesBehindTheFetchesOfForward) {
  constexpr std::int64_t kReadNs = 1'000'000;  // of a weight plane
  house.drive_options.delay_ns = [](const io::Request& request, std::int64_t) {
    return static_cast<std::int64_t>(request.bytes) * kReadNs / (kChunk * 2);
  };
  options.io.queue_depth = 1;
  open();
  for (std::uint64_t number = 0; number < 2; ++number) {
    at_seal = engine->stats();
    Pass pass = begin();
    const std::int64_t begin_ns = house.world.now_ns();
    { const Lease lease = fetch(pass, {it[0]}); }
    EXPECT_LT(house.world.now_ns() - begin_ns, 2 * kReadNs);  // a record takes six
    let_all_happen();
    EXPECT_EQ(records_read(), number * 3 * kRecord);
    backward(pass, number);
    step(pass);
  }
}

// What was read ahead of gradients that do not come is no reason to update one after the other.
TEST_F(EarlyReadAhead, MakesRoomForAllThatAreReady) {
  slow(io::Op::kRead);
  open_and_train();
  Pass other = begin();
  for (std::size_t i = kCount; i-- > 3;) give(other, it[i], values(i));
  let_all_happen();
  step(other);
  at_seal = engine->stats();
  Pass pass = begin();
  let_all_happen();
  ASSERT_EQ(records_read(), 3 * kRecord);
  const std::int64_t begin_ns = house.world.now_ns();
  for (std::size_t i = 3; i-- > 0;) give(pass, it[i], values(i));
  let_all_happen();
  EXPECT_LT(house.world.now_ns() - begin_ns, 3 * kSlowNs);
  step(pass);
  EXPECT_EQ(early(), 3U);
}

TEST_F(EarlyReadAhead, HoldsItsRecordsOverMicroBatches) {
  open_and_train();
  Pass pass = begin({.micro_batches = 3});
  for (std::uint64_t micro = 0; micro < 3; ++micro) {
    backward(pass, micro);
    let_all_happen();
  }
  step(pass);
  EXPECT_EQ(early(), kCount);
  EXPECT_EQ(records_read(), kCount * kRecord);
}

TEST_F(EarlyReadAhead, IsNotMadeWhereNobodyKnowsWhichGradientIsTheLast) {
  open_and_train();
  Pass pass = begin({.micro_batches = 0});
  let_all_happen();
  EXPECT_EQ(records_read(), 0U);
  EXPECT_THAT(pass.abort(), IsOk());
}

TEST_F(EarlyReadAhead, IsNotMadeWhileEarlyUpdatesPause) {
  open();
  Pass pass = begin();
  backward(pass);
  let_all_happen();
  ASSERT_THAT(pass.step({.loss_scale = 2}), IsOk());
  ASSERT_EQ(engine->stats().wrong_guesses, 1U);
  at_seal = engine->stats();
  Pass next = begin();
  let_all_happen();
  EXPECT_EQ(records_read(), 0U);
  EXPECT_THAT(next.abort(), IsOk());
}

TEST_F(EarlyReadAhead, GivesWayToGradientsThatComeInAnotherOrder) {
  for (const std::uint64_t budget : {kLeast, kNoSpill})
    for (const bool ended : {false, true})
      expect_the_bits_of_serial_steps(
          [&] {
            train_early();
            at_seal = engine->stats();
            Pass pass = begin();
            if (ended) let_all_happen();
            for (std::size_t i = 0; i < kCount; ++i) {
              give(pass, it[i], values(i, 7));
              if (ended) let_all_happen();
            }
            step(pass);
            if (options.undo == Undo::kOff) return;
            if (ended) {
              EXPECT_EQ(early(), kCount);
            }
            EXPECT_LE(records_read(), 2 * kCount * kRecord);
            EXPECT_EQ(records_written(), kCount * kRecord);
            EXPECT_EQ(engine->stats().redone_updates, 0U);
          },
          budget);
}

// What was read for nothing still holds its frames, read or not, when the step wants them.
TEST_F(EarlyReadAhead, IsLetGoWhereTheGradientsDoNotCome) {
  for (const bool read : {false, true})
    for (const std::size_t only : {std::size_t{0}, kCount - 1})
      expect_the_bits_of_serial_steps([&] {
        train_early();
        Pass pass = begin();
        if (read) let_all_happen();
        give(pass, it[only], values(only, 7));
        const std::uint64_t written = records_written();
        step(pass);
        for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(count(it[i]), i == only ? 2U : 1U);
        if (options.undo == Undo::kOn && !read) {
          EXPECT_EQ(records_written() - written, kRecord);
        }
        EXPECT_EQ(engine->stats().redone_updates, 0U);
      });
}

TEST_F(EarlyReadAhead, IsLetGoWhenTheGuessIsKnownToBeWrong) {
  for (const bool read : {false, true})
    expect_the_bits_of_serial_steps([&] {
      train_early();
      at_seal = engine->stats();
      Pass pass = begin({.max_norm = 1e-3});
      if (read) let_all_happen();
      if (options.undo == Undo::kOn) {
        EXPECT_EQ(records_read(), 3 * kRecord);
      }
      backward(pass, 7);
      step(pass);
      EXPECT_EQ(early(), 0U);
      EXPECT_EQ(engine->stats().redone_updates, 0U);
      EXPECT_EQ(engine->stats().wrong_guesses, 0U);
    });
}

// The gradient of a record that gives its frame back comes, and its update turns out wrong.
TEST_F(EarlyReadAhead, OfAChunkThatIsWithdrawnAndTriedAllTheSameIsThrownAwayLikeAny) {
  expect_the_bits_of_serial_steps([&] {
    train_early();
    Pass pass = begin();
    for (std::size_t i = 0; i < kCount; ++i) give(pass, it[i], values(i, 7));  // nothing is read yet
    let_all_happen();
    EXPECT_THAT(pass.step({.loss_scale = 4}), IsOk());
    if (options.undo == Undo::kOn) {
      EXPECT_EQ(engine->stats().redone_updates, kCount);
      EXPECT_EQ(engine->stats().wrong_guesses, 1U);
    }
  });
}

// No add_gradient waits for the read of a record that is of no use any more.
TEST_F(EarlyReadAhead, HoldsUpNoGradientThatWasNotExpected) {
  slow(io::Op::kRead);
  ParameterId small, beside;
  before_seal = [&] {
    small = add("small", {300}, {.optimizer = kRule});
    beside = add("beside", {300}, {.optimizer = kRule});
  };
  open();
  for (std::uint64_t number = 0; number < 2; ++number) {
    Pass pass = begin();
    const std::int64_t begin_ns = house.world.now_ns();
    give(pass, small, Values(300, 1));
    if (number == 1) give(pass, small, Values(300, 2));
    give(pass, beside, Values(300, 3));
    EXPECT_LT(house.world.now_ns() - begin_ns, kSlowNs);
    step(pass);
  }
}

TEST_F(EarlyReadAhead, OfAChunkThatGetsMoreThanExpectedIsLeftToTheStep) {
  ParameterId small, beside;
  before_seal = [&] {
    small = add("small", {300}, {.optimizer = kRule});
    beside = add("beside", {300}, {.optimizer = kRule});
  };
  expect_the_bits_of_serial_steps([&] {
    for (std::uint64_t number = 0; number < 2; ++number) {
      Pass pass = begin();
      give(pass, small, Values(300, 1));
      if (number == 1) give(pass, small, Values(300, 2));  // before the chunk is ready
      give(pass, beside, Values(300, 3));
      let_all_happen();
      step(pass);
    }
    if (options.undo == Undo::kOn) {
      EXPECT_EQ(engine->stats().early_updates, 1U);
      EXPECT_EQ(engine->stats().redone_updates, 0U);
    }
  });
}

// A record that could not be read ahead is read again, for the step or by it.
TEST_F(EarlyReadAhead, ThatFailsOnceIsMadeGoodByTheStep) {
  std::uint64_t redone = 0;
  for (std::uint64_t skip = 0; skip < kCount; ++skip) {
    SCOPED_TRACE(skip);
    expect_the_bits_of_serial_steps([&] {
      train_early();
      if (options.undo == Undo::kOn)
        house.backend->faults().add({.op = io::Op::kRead, .error = EIO, .skip = skip, .count = 1});
      Pass pass = begin();
      let_all_happen();
      backward(pass, 7);
      let_all_happen();
      step(pass);
      house.backend->faults().clear();
      redone = std::max(redone, engine->stats().redone_updates);
    });
    if (HasFailure()) return;
  }
  EXPECT_GT(redone, 0U);
}

TEST_F(EarlyReadAhead, EndsWithItsEngine) {
  for (int turns = 0; turns < 24; ++turns) {
    SCOPED_TRACE(turns);
    open_and_train();
    Pass pass = begin();
    turn(turns);
    give(pass, it[2], values(2, 7));
    EXPECT_THAT(engine->close(), IsOk());
  }
}

}  // namespace
}  // namespace sluice
