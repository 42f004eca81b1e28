#include "trainer/schedule.hpp"

#include <gtest/gtest.h>

namespace sluice::trainer {
namespace {

constexpr Schedule kTen{
    .peak = 2, .warmup_steps = 4, .steps = 14, .decline = Decline::kLinear, .least = 0.25};

Schedule with(Decline decline) {
  Schedule schedule = kTen;
  schedule.decline = decline;
  return schedule;
}

TEST(Schedule, RisesInALineToThePeak) {
  for (const Decline decline : kDeclines) {
    const Schedule schedule = with(decline);
    EXPECT_EQ(schedule.at(0), 0.5);
    EXPECT_EQ(schedule.at(1), 1);
    EXPECT_EQ(schedule.at(3), 2);
    EXPECT_EQ(schedule.at(4), 2);
  }
}

TEST(Schedule, DeclinesAsItsNameSays) {
  EXPECT_EQ(with(Decline::kConstant).at(9), 2);
  EXPECT_EQ(with(Decline::kConstant).at(1000), 2);
  EXPECT_DOUBLE_EQ(with(Decline::kLinear).at(9), 2 * (0.25 + 0.75 * 0.5)) << "half of the way";
  EXPECT_DOUBLE_EQ(with(Decline::kCosine).at(9), 2 * (0.25 + 0.75 * 0.5)) << "half of the way";
  EXPECT_DOUBLE_EQ(with(Decline::kCosine).at(6), 2 * (0.25 + 0.375 * (1 + std::cos(std::numbers::pi / 5))));
}

TEST(Schedule, EndsAtItsPartOfThePeakAndStaysThere) {
  for (const Decline decline : {Decline::kCosine, Decline::kLinear}) {
    EXPECT_DOUBLE_EQ(with(decline).at(14), 0.5);
    EXPECT_DOUBLE_EQ(with(decline).at(100), 0.5);
    Schedule to_nothing = with(decline);
    to_nothing.least = 0;
    EXPECT_EQ(to_nothing.at(14), 0);
  }
}

TEST(Schedule, NeverRisesAfterThePeak) {
  for (const Decline decline : kDeclines) {
    const Schedule schedule = with(decline);
    for (std::uint64_t step = 4; step < 20; ++step)
      EXPECT_LE(schedule.at(step + 1), schedule.at(step)) << step;
  }
}

TEST(Schedule, WarmupMayBeNothingOrLongerThanTheRun) {
  Schedule schedule = kTen;
  schedule.warmup_steps = 0;
  EXPECT_EQ(schedule.at(0), 2);
  schedule.warmup_steps = 100;
  EXPECT_EQ(schedule.at(13), 0.28);
}

TEST(Schedule, WarmsUpInALineAndCoolsToATenth) {
  const Schedule schedule{.peak = 1, .warmup_steps = 4, .steps = 104};
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(3), 1);
  EXPECT_DOUBLE_EQ(schedule.at(4), 1);
  EXPECT_DOUBLE_EQ(schedule.at(54), 0.55);
  EXPECT_NEAR(schedule.at(103), 0.1, 1e-3);
}

}  // namespace
}  // namespace sluice::trainer
