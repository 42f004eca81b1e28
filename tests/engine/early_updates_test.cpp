#include "engine/early_engine.hpp"
#include "engine/probe.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::Fails;
using sim::IsOk;
using testing::HasSubstr;

class EarlyUpdates : public sim::EarlyTest {};

TEST_F(EarlyUpdates, AreMadeBeforeStepAndEachRecordMovesOnce) {
  open();
  Pass pass = begin();
  backward(pass);
  let_all_happen();
  EXPECT_EQ(records_read(), kCount * kRecord);
  EXPECT_EQ(records_written(), kCount * kRecord);
  step(pass);
  EXPECT_EQ(records_read(), kCount * kRecord);
  EXPECT_EQ(records_written(), kCount * kRecord);
  const Stats stats = engine->stats();
  EXPECT_EQ(stats.early_updates, kCount);
  EXPECT_EQ(stats.redone_updates, 0U);
  EXPECT_EQ(stats.wrong_guesses, 0U);
}

TEST_F(EarlyUpdates, UnderWayWhenStepIsCalledAreKept) {
  open();
  Pass pass = begin();
  backward(pass);
  step(pass);
  EXPECT_GT(engine->stats().early_updates, 0U);
  EXPECT_EQ(engine->stats().redone_updates, 0U);
  EXPECT_EQ(records_read(), kCount * kRecord);
}

TEST_F(EarlyUpdates, GiveTheBitsOfSerialSteps) {
  for (const std::uint64_t budget : {kLeast, kNoSpill})
    for (const bool ended : {false, true})
      expect_the_bits_of_serial_steps(
          [&] {
            for (std::uint64_t number = 0; number < 3; ++number) {
              Pass pass = begin({.max_norm = 1e6, .loss_scale = 8, .micro_batches = 2});
              backward(pass, number);
              backward(pass, number + 10);
              if (ended) let_all_happen();
              step(pass);
            }
          },
          budget);
}

TEST_F(EarlyUpdates, LeaveAFrameForTheNextGradient) {
  slow(io::Op::kRead);
  open(kLeast);
  Pass pass = begin();
  const std::int64_t begin_ns = house.world.now_ns();
  backward(pass);
  EXPECT_LT(house.world.now_ns() - begin_ns, kSlowNs);
  step(pass);
  EXPECT_EQ(engine->stats().early_updates, 2U);  // of three frames
}

TEST_F(EarlyUpdates, WaitForTheLastMicroBatch) {
  open();
  Pass pass = begin({.micro_batches = 3});
  for (std::uint64_t micro = 0; micro < 2; ++micro) {
    backward(pass, micro);
    let_all_happen();
    EXPECT_EQ(records_read(), 0U);
  }
  give(pass, it[5], values(5, 2));
  let_all_happen();
  EXPECT_EQ(records_read(), kRecord);
  EXPECT_THAT(pass.abort(), IsOk());
}

TEST_F(EarlyUpdates, WaitForTheLastPartOfAContribution) {
  open();
  Pass pass = begin();
  give(pass, it[0], values(0), More::kYes);
  let_all_happen();
  EXPECT_EQ(records_read(), 0U);
  give(pass, it[0], values(0));
  let_all_happen();
  EXPECT_EQ(records_read(), kRecord);
  step(pass);
  EXPECT_EQ(engine->stats().early_updates, 1U);
}

TEST_F(EarlyUpdates, WaitForAllTensorsOfTheirChunk) {
  ParameterId small, beside;
  before_seal = [&] {
    small = add("small", {300}, {.optimizer = kRule});
    beside = add("beside", {300}, {.optimizer = kRule});
  };
  const auto script = [&] {
    Pass pass = begin();
    give(pass, small, Values(300, 1));
    let_all_happen();
    EXPECT_EQ(records_read(), 0U);
    give(pass, beside, Values(300, 2));
    let_all_happen();
    if (options.undo == Undo::kOn) {
      EXPECT_GT(records_read(), 0U);
    }
    step(pass);
    EXPECT_EQ(count(small) + count(beside), 2U);
  };
  expect_the_bits_of_serial_steps(script);
  const auto early = std::pair(state(small), state(beside));
  options.undo = Undo::kOff;
  open();
  script();
  EXPECT_EQ(early, std::pair(state(small), state(beside)));
}

TEST_F(EarlyUpdates, AreNotMadeWithAnUnknownNumberOfMicroBatches) {
  open();
  train_early({.micro_batches = 0});
  EXPECT_EQ(engine->stats().early_updates, 0U);
  EXPECT_EQ(engine->stats().steps, 1U);
}

TEST_F(EarlyUpdates, AreNotMadeOfRecordsInMemory) {
  open(kUnlimited);
  ASSERT_GT(report.resident_chunks, 0U);
  train_early();
  EXPECT_EQ(engine->stats().early_updates, 0U);
}

TEST_F(EarlyUpdates, AreMadeOfWhatNoMoreGradientsClosed) {
  expect_the_bits_of_serial_steps([&] {
    Pass pass = begin({.micro_batches = 0});
    backward(pass);
    EXPECT_THAT(pass.no_more_gradients(it[3]), IsOk());
    let_all_happen();
    step(pass);
    EXPECT_EQ(engine->stats().early_updates, options.undo == Undo::kOn ? 1U : 0U);
  });
}

TEST_F(EarlyUpdates, AreNotHeldUpByAClosedTensorWithoutAGradient) {
  ParameterId small, beside;
  before_seal = [&] {
    small = add("small", {300}, {.optimizer = kRule});
    beside = add("beside", {300}, {.optimizer = kRule});
  };
  open();
  Pass pass = begin();
  give(pass, small, Values(300, 1));
  EXPECT_THAT(pass.no_more_gradients(beside), IsOk());
  let_all_happen();
  step(pass);
  EXPECT_EQ(engine->stats().early_updates, 1U);
  EXPECT_EQ(count(small), 1U);
  EXPECT_EQ(count(beside), 0U);
}

TEST_F(EarlyUpdates, OfTiedParametersWaitForTheGradientsOfAllNames) {
  ParameterId tied;
  before_seal = [&] { tied = tie("tied", it[2]); };
  expect_the_bits_of_serial_steps([&] {
    Pass pass = begin();
    give(pass, it[2], values(2));
    let_all_happen();
    EXPECT_EQ(records_read(), 0U);
    give(pass, tied, values(2, 1));
    let_all_happen();
    if (options.undo == Undo::kOn) {
      EXPECT_EQ(records_read(), kRecord);
    }
    step(pass);
    // A step for expect_no_slot_lost(), which gives the one name alone.
    EXPECT_EQ(count(it[2]), 1U);
  });
}

TEST_F(EarlyUpdates, AreTakenBackByAGradientThatWasNotExpected) {
  for (const bool ended : {false, true})
    for (const More more : {More::kNo, More::kYes}) {
      expect_the_bits_of_serial_steps([&] {
        Pass pass = begin();
        backward(pass);
        if (ended) let_all_happen();
        give(pass, it[5], values(5, 1), more);
        give(pass, it[0], values(0, 1), more);
        if (more == More::kYes) {
          give(pass, it[5], values(5, 2));
          give(pass, it[0], values(0, 2));
        }
        if (ended) let_all_happen();
        step(pass);
        if (options.undo == Undo::kOn && ended) {
          EXPECT_EQ(engine->stats().early_updates, kCount - 2);
          EXPECT_EQ(engine->stats().redone_updates, 2U);
        }
        EXPECT_EQ(engine->stats().wrong_guesses, 0U);
      });
    }
}

// Every moment of an update at which the gradient may come: the number of things that have happened since.
TEST_F(EarlyUpdates, MayBeTakenBackAtAnyMoment) {
  for (int turns = 0; turns < 24; ++turns) {
    SCOPED_TRACE(fmt::format("after {} turns", turns));
    expect_the_bits_of_serial_steps([&] {
      Pass pass = begin();
      give(pass, it[1], values(1));
      turn(turns);
      give(pass, it[1], values(1, 1));
      step(pass);
    });
    if (HasFailure()) return;
  }
}

TEST_F(EarlyUpdates, AreAllMadeAgainWhenTheNormClips) {
  expect_the_bits_of_serial_steps([&] {
    Pass pass = begin({.max_norm = 100});
    for (std::size_t i = kCount; i-- > 1;) give(pass, it[i], values(i));
    let_all_happen();
    give(pass, it[0], Values(kChunk, 1000));
    let_all_happen();
    step(pass);
    if (options.undo == Undo::kOff) return;
    EXPECT_EQ(records_written(), (2 * kCount - 1) * kRecord);
    EXPECT_EQ(engine->stats().early_updates, 0U);
    EXPECT_EQ(engine->stats().redone_updates, kCount - 1);
    EXPECT_EQ(engine->stats().wrong_guesses, 1U);
  });
}

TEST_F(EarlyUpdates, UnderWayWhenTheGuessTurnsOutWrongAreMadeAgain) {
  for (const std::uint64_t budget : {kLeast, kNoSpill})
    expect_the_bits_of_serial_steps(
        [&] {
          for (std::uint64_t number = 0; number < 3; ++number) {
            Pass pass = begin({.max_norm = 86});  // 83 without the last
            backward(pass, number);
            step(pass);
          }
        },
        budget);
}

TEST_F(EarlyUpdates, AreNotBegunOnceClippingIsCertain) {
  open();
  Pass pass = begin({.max_norm = 1e-3});
  backward(pass);
  let_all_happen();
  EXPECT_EQ(records_read(), 0U);
  step(pass);
  EXPECT_EQ(engine->stats().wrong_guesses, 0U);
}

TEST_F(EarlyUpdates, PauseAfterAWrongGuessUntilSixteenStepsWouldHaveBeenRight) {
  open();
  Pass pass = begin();
  backward(pass);
  let_all_happen();
  ASSERT_THAT(pass.step({.loss_scale = 2}), IsOk());
  EXPECT_EQ(engine->stats().wrong_guesses, 1U);
  for (int i = 0; i < 5; ++i) train_early();
  train_early({.max_norm = 1e-3});  // would have been wrong
  for (int i = 0; i < 16; ++i) {
    train_early();
    EXPECT_EQ(engine->stats().early_updates, 0U) << "in step " << i << " of the pause";
  }
  train_early();
  EXPECT_EQ(engine->stats().early_updates, kCount);
  EXPECT_EQ(engine->stats().wrong_guesses, 1U);
}

TEST_F(EarlyUpdates, WithOtherNumbersThanTheStepsAreMadeAgain) {
  expect_the_bits_of_serial_steps([&] {
    Pass pass = begin();
    backward(pass);
    let_all_happen();
    const Result<StepResult> result = pass.step({.loss_scale = 4, .gradient_divisor = 2});
    EXPECT_THAT(result, IsOk());
    if (options.undo == Undo::kOn) {
      EXPECT_EQ(engine->stats().redone_updates, kCount);
      EXPECT_EQ(engine->stats().wrong_guesses, 1U);
    }
  });
}

TEST_F(EarlyUpdates, OfAGroupWhoseNumbersChangeAreMadeAgainAndTheOthersKept) {
  expect_the_bits_of_serial_steps([&] {
    Pass pass = begin();
    for (const std::size_t i : {5U, 4U, 3U}) give(pass, it[i], values(i));
    let_all_happen();
    EXPECT_THAT(engine->update_group({4}, AdamW{.lr = 1e-3}), IsOk());
    // Known to be wrong: nothing more is begun.
    for (const std::size_t i : {2U, 1U, 0U}) give(pass, it[i], values(i));
    let_all_happen();
    step(pass);
    if (options.undo == Undo::kOn) {
      EXPECT_EQ(engine->stats().early_updates, 2U);
      EXPECT_EQ(engine->stats().redone_updates, 1U);
      EXPECT_EQ(engine->stats().wrong_guesses, 1U);
    }
    // As before, for what comes after the script.
    EXPECT_THAT(engine->update_group({4}, kRule), IsOk());
  });
}

TEST_F(EarlyUpdates, UseTheNumbersThatAGroupGotBeforeItsGradients) {
  expect_the_bits_of_serial_steps([&] {
    Pass pass = begin();
    EXPECT_THAT(engine->update_group({4}, AdamW{.lr = 1e-3}), IsOk());
    backward(pass);
    let_all_happen();
    step(pass);
    EXPECT_EQ(engine->stats().wrong_guesses, 0U);
    EXPECT_THAT(engine->update_group({4}, kRule), IsOk());
  });
  EXPECT_EQ(engine->stats().early_updates, kCount);
}

TEST_F(EarlyUpdates, ABadValueTheLastOfAllLeavesEveryBitAndCount) {
  for (const std::uint64_t budget : {kLeast, kNoSpill}) {
    for (const bool ended : {false, true}) {
      open(budget);
      train_early();
      const auto before = states();
      Pass pass = begin({.micro_batches = 2});
      backward(pass, 1);
      for (std::size_t i = kCount; i-- > 1;) give(pass, it[i], values(i, 2));
      if (ended) let_all_happen();
      Values last = values(0, 2);
      last.back() = NAN;
      give(pass, it[0], last);
      const StepResult result = step(pass);
      EXPECT_TRUE(result.skipped);
      EXPECT_EQ(result.step, 1U);
      EXPECT_EQ(states(), before);
      EXPECT_EQ(engine->stats().redone_updates, 0U);
      if (ended) {
        EXPECT_EQ(engine->stats().wrong_guesses, 1U);
      }
      expect_no_slot_lost();
    }
  }
}

TEST_F(EarlyUpdates, StopAtABadValue) {
  open();
  Pass pass = begin();
  Values bad = values(5);
  bad[7] = INFINITY;
  give(pass, it[5], bad);
  for (std::size_t i = 5; i-- > 0;) give(pass, it[i], values(i));
  let_all_happen();
  EXPECT_EQ(records_read(), 0U);
  EXPECT_TRUE(step(pass).skipped);
}

TEST_F(EarlyUpdates, WithBadValuesIgnoredAreKept) {
  expect_the_bits_of_serial_steps([&] {
    // Bits of NaNs compare by value here: none but zeros and infinities come out.
    Pass pass = begin({.non_finite = NonFinite::kIgnore});
    Values bad = values(5);
    bad[7] = INFINITY;
    give(pass, it[5], bad);
    for (std::size_t i = 5; i-- > 0;) give(pass, it[i], values(i));
    let_all_happen();
    EXPECT_FALSE(step(pass).skipped);
    if (options.undo == Undo::kOn) {
      EXPECT_EQ(engine->stats().early_updates, kCount);
    }
    // What is not a number is equal to nothing, itself included.
    Values weights = read(it[5], View::kMaster), moments = read(it[5], View::kMoment1);
    weights[7] = moments[7] = 0;
    EXPECT_THAT(engine->write(it[5], View::kMaster, {0, kChunk}, weights.data(), DType::kF32), IsOk());
    EXPECT_THAT(engine->write(it[5], View::kMoment1, {0, kChunk}, moments.data(), DType::kF32), IsOk());
    moments = read(it[5], View::kMoment2);
    moments[7] = 0;
    EXPECT_THAT(engine->write(it[5], View::kMoment2, {0, kChunk}, moments.data(), DType::kF32), IsOk());
  });
}

TEST_F(EarlyUpdates, AreNotSeenByFetchesBeforeTheStep) {
  open();
  Pass pass = begin();
  std::vector<std::vector<std::uint16_t>> before;
  for (const ParameterId parameter : it) before.push_back(bits(fetch(pass, {parameter})[parameter]));
  backward(pass);
  let_all_happen();
  EXPECT_EQ(records_written(), kCount * kRecord);
  {
    Pass evaluation = look();
    for (std::size_t i = 0; i < kCount; ++i)
      EXPECT_EQ(bits(fetch(evaluation, {it[i]})[it[i]]), before[i]) << "parameter " << i;
    EXPECT_THAT(evaluation.end(), IsOk());
  }
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(bits(fetch(pass, {it[i]})[it[i]]), before[i]);
  step(pass);
  Pass after = look();
  for (std::size_t i = 0; i < kCount; ++i)
    EXPECT_NE(bits(fetch(after, {it[i]})[it[i]]), before[i]) << "parameter " << i;
}

TEST_F(EarlyUpdates, ARefusedStepLeavesThemAsTheyAre) {
  open();
  Pass pass = begin();
  backward(pass);
  let_all_happen();
  {
    const Lease lease = fetch(pass, {it[0]});
    EXPECT_THAT(pass.step(), Fails(Code::kFailedPrecondition, HasSubstr("'p0'")));
  }
  EXPECT_THAT(pass.step({.loss_scale = -1}), Fails(Code::kInvalidArgument, HasSubstr("loss_scale")));
  step(pass);
  EXPECT_EQ(engine->stats().early_updates, kCount);
  EXPECT_EQ(records_written(), kCount * kRecord);
}

TEST_F(EarlyUpdates, ReplaysGoThroughAllChunksOrThoseOfTheStepAlone) {
  open();
  Pass pass = begin({.micro_batches = 2});
  backward(pass, 1);
  for (const std::size_t i : {5U, 4U}) give(pass, it[i], values(i, 2));
  let_all_happen();
  step(pass);
  ASSERT_EQ(engine->stats().early_updates, 2U);
  const auto before = states();
  const auto replayed = [&](engine::Replayed chunks) {
    const std::uint64_t read = records_read(), written = records_written();
    EXPECT_THAT(engine::replay_step_io(*engine, chunks), IsOk());
    EXPECT_EQ(records_read() - read, records_written() - written);
    return (records_read() - read) / kRecord;
  };
  EXPECT_EQ(replayed(engine::Replayed::kAll), kCount);
  EXPECT_EQ(replayed(engine::Replayed::kNotEarly), kCount - 2);
  EXPECT_THAT(engine::replay_step_compute(*engine), IsOk());
  EXPECT_EQ(states(), before);
  expect_no_slot_lost();
}

}  // namespace
}  // namespace sluice
