#include "sluice/loss_scaler.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace sluice {
namespace {

using Outcome = LossScaler::Outcome;

TEST(LossScaler, StartsAt2To16AndDoublesAfter2000GoodSteps) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 1999; ++i) ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  EXPECT_EQ(scaler.scale(), 65536);
  ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  EXPECT_EQ(scaler.scale(), 131072);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  EXPECT_EQ(scaler.scale(), 262144);
}

TEST(LossScaler, HalvesAfterABadStepAndCountsGoodOnesAnew) {
  LossScaler scaler;
  for (int i = 0; i < 1999; ++i) ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  ASSERT_TRUE(scaler.update(Outcome::kSkipped).ok());
  EXPECT_EQ(scaler.scale(), 32768);
  for (int i = 0; i < 1999; ++i) ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  EXPECT_EQ(scaler.scale(), 32768);
  ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, FailsAfterEightBadStepsInARowAtTheFloor) {
  LossScaler scaler({.initial_scale = 4});
  ASSERT_TRUE(scaler.update(Outcome::kSkipped).ok());
  ASSERT_TRUE(scaler.update(Outcome::kSkipped).ok());
  EXPECT_EQ(scaler.scale(), 1);
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(scaler.update(Outcome::kSkipped).ok());
  ASSERT_TRUE(scaler.update(Outcome::kGood).ok());  // the row begins anew
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(scaler.update(Outcome::kSkipped).ok());
  const Status failed = scaler.update(Outcome::kSkipped);
  EXPECT_EQ(failed.code(), Code::kFailedPrecondition);
  EXPECT_NE(failed.message().find("8 steps in a row"), std::string::npos) << failed.to_string();
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, NeverGoesBelowItsFloor) {
  LossScaler scaler({.initial_scale = 3, .floor = 2});
  ASSERT_TRUE(scaler.update(Outcome::kSkipped).ok());
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_EQ(LossScaler({.initial_scale = 1, .floor = 2}).scale(), 2);
}

TEST(LossScaler, IsAValueThatIsCopied) {
  LossScaler scaler;
  LossScaler copy = scaler;
  ASSERT_TRUE(copy.update(Outcome::kSkipped).ok());
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(copy.scale(), 32768);
}

TEST(LossScaler, GoesOnFromItsStateAsIfNothingHadHappened) {
  LossScaler scaler;
  ASSERT_TRUE(scaler.update(Outcome::kSkipped).ok());
  for (int i = 0; i < 1999; ++i) ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  LossScaler other;
  ASSERT_TRUE(other.restore(scaler.state()).ok());
  EXPECT_EQ(other.state(), scaler.state());
  ASSERT_TRUE(other.update(Outcome::kGood).ok());
  EXPECT_EQ(other.scale(), 65536);
}

TEST(LossScaler, GrowsAtOnceAfterAStateWithMoreGoodStepsThanItsInterval) {
  LossScaler scaler({.growth_interval = 5});
  ASSERT_TRUE(scaler.restore({.scale = 65536, .good_steps = 1999}).ok());
  ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  EXPECT_EQ(scaler.scale(), 131072);
  EXPECT_EQ(scaler.state().good_steps, 0u);
}

TEST(LossScaler, RefusesScalesThatItCannotHaveComeToAndStaysAsItIs) {
  LossScaler scaler;
  for (const double bad :
       {0.0, 0.5, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(scaler.restore({.scale = bad}).code(), Code::kInvalidArgument) << bad;
    EXPECT_EQ(scaler.state(), LossScaler().state());
  }
}

TEST(LossScaler, NeverGrowsBeyondWhatIsFinite) {
  LossScaler scaler({.initial_scale = 0x1p1023, .growth_interval = 1});
  ASSERT_TRUE(scaler.update(Outcome::kGood).ok());
  EXPECT_EQ(scaler.scale(), 0x1p1023);
}

}  // namespace
}  // namespace sluice
