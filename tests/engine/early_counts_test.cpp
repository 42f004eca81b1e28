#include "engine/early_engine.hpp"

namespace sluice {
namespace {

/// How many gradients an update during backward waits for.
class EarlyCounts : public sim::EarlyTest {};

TEST_F(EarlyCounts, LearnHowOftenAParameterGetsAGradient) {
  std::uint64_t early[3] = {};
  expect_the_bits_of_serial_steps([&] {
    for (std::uint64_t number = 0; number < 3; ++number) {
      const std::uint64_t before = engine->stats().early_updates;
      Pass pass = begin({.micro_batches = 2});
      for (std::uint64_t micro = 0; micro < 2; ++micro)
        for (std::size_t i = kCount; i-- > 0;)
          if (i != 1 && (i != 4 || micro == 0)) give(pass, it[i], values(i, number * 2 + micro));
      let_all_happen();
      step(pass);
      early[number] = engine->stats().early_updates - before;
    }
    EXPECT_EQ(count(it[1]), 0U);
  });
  // One gets none and one gets fewer than there are micro-batches: the first step cannot know.
  EXPECT_EQ(early[0], kCount - 2);
  EXPECT_EQ(early[1], kCount - 1);
  EXPECT_EQ(early[2], kCount - 1);
}

TEST_F(EarlyCounts, AreMadeTwiceAtMostOnceWhereTheNumberOfGradientsVaries) {
  expect_the_bits_of_serial_steps([&] {
    for (std::uint64_t number = 0; number < 8; ++number) {
      Pass pass = begin({.micro_batches = 2});
      for (std::uint64_t micro = 0; micro < 1 + number % 2; ++micro) {
        backward(pass, number * 2 + micro);
        let_all_happen();
      }
      step(pass);
    }
    if (options.undo == Undo::kOff) return;
    EXPECT_EQ(engine->stats().redone_updates, kCount);  // of the second step
    EXPECT_EQ(engine->stats().early_updates, 3 * kCount);
  });
}

TEST_F(EarlyCounts, RememberWhatTheyLearnedOfEachNumberOfMicroBatches) {
  open();
  for (const std::uint32_t micro_batches : {2U, 3U, 2U}) {
    const std::uint64_t before = engine->stats().early_updates;
    Pass pass = begin({.micro_batches = micro_batches});
    backward(pass, micro_batches);  // one gradient each, whatever the number
    let_all_happen();
    step(pass);
    const bool again = engine->stats().steps == 3;
    EXPECT_EQ(engine->stats().early_updates - before, again ? kCount : 0U);
  }
}

}  // namespace
}  // namespace sluice
