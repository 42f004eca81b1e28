#include "plan/speculation.hpp"

#include <gtest/gtest.h>

#include <random>

namespace sluice::plan {
namespace {

TEST(Speculation, IsAllowedAtFirstAndWhileNothingIsThrownAway) {
  Speculation speculation;
  EXPECT_TRUE(speculation.allowed());
  for (int step = 0; step < 100; ++step) {
    speculation.decided(step % 2 == 0 ? Guess::kRight : Guess::kWrong, 0);
    EXPECT_TRUE(speculation.allowed());
  }
}

TEST(Speculation, PausesAfterALossUntilSixteenStepsInARowWouldHaveBeenRight) {
  Speculation speculation;
  speculation.decided(Guess::kWrong, 1);
  for (int step = 0; step < 16; ++step) {
    EXPECT_FALSE(speculation.allowed()) << "before step " << step;
    speculation.decided(Guess::kRight, 0);
  }
  EXPECT_TRUE(speculation.allowed());
}

TEST(Speculation, AWrongGuessInThePauseBeginsItAnew) {
  Speculation speculation;
  speculation.decided(Guess::kWrong, 3);
  for (int step = 0; step < 15; ++step) speculation.decided(Guess::kRight, 0);
  speculation.decided(Guess::kWrong, 0);
  for (int step = 0; step < 15; ++step) speculation.decided(Guess::kRight, 0);
  EXPECT_FALSE(speculation.allowed());
  speculation.decided(Guess::kRight, 0);
  EXPECT_TRUE(speculation.allowed());
}

TEST(Speculation, IsAllowedExactlyWhenTheLastLossLiesSixteenRightStepsBack) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Speculation speculation;
    bool paused = false;
    int right_in_a_row = 0;
    for (int step = 0; step < 2000; ++step) {
      const bool right = random() % 20 != 0;
      const std::uint64_t thrown_away = right || paused ? 0 : random() % 3;
      if (!right && (paused || thrown_away > 0)) {
        paused = true;
        right_in_a_row = 0;
      } else if (right && ++right_in_a_row >= 16) {
        paused = false;
      }
      speculation.decided(right ? Guess::kRight : Guess::kWrong, thrown_away);
      ASSERT_EQ(speculation.allowed(), !paused) << "after step " << step;
    }
  }
}

}  // namespace
}  // namespace sluice::plan
