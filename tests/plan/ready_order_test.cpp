#include "plan/ready_order.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace sluice::plan {
namespace {

constexpr std::uint32_t kItems = 6;

class ReadyOrderTest : public ::testing::Test {
 protected:
  void step(std::initializer_list<std::uint32_t> items) {
    order.begin();
    for (const std::uint32_t item : items) order.ready(item);
    order.learn();
  }

  ReadyOrder order{kItems};
};

TEST_F(ReadyOrderTest, ForetellsNothingBeforeAStep) {
  order.begin();
  EXPECT_EQ(order.next(), std::nullopt);
  order.ready(3);
  EXPECT_EQ(order.next(), std::nullopt);
  EXPECT_FALSE(order.passed_over(2));
}

TEST_F(ReadyOrderTest, GivesTheOrderOfTheLastStepOnce) {
  step({5, 1, 3});
  order.begin();
  EXPECT_EQ(order.next(), 5U);
  EXPECT_EQ(order.next(), 1U);
  EXPECT_EQ(order.next(), 3U);
  EXPECT_EQ(order.next(), std::nullopt);
  order.begin();
  EXPECT_EQ(order.next(), 5U);
}

TEST_F(ReadyOrderTest, LeavesOutWhatIsReady) {
  step({5, 1, 3, 0});
  order.begin();
  order.ready(5);
  order.ready(3);
  EXPECT_EQ(order.next(), 1U);
  EXPECT_EQ(order.next(), 0U);
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST_F(ReadyOrderTest, KnowsWhatWasPassedOver) {
  step({5, 1, 3, 0});
  order.begin();
  order.ready(5);
  EXPECT_FALSE(order.passed_over(1));
  order.ready(2);  // not foretold: tells nothing of the others
  EXPECT_FALSE(order.passed_over(1));
  order.ready(3);
  EXPECT_TRUE(order.passed_over(1));
  EXPECT_FALSE(order.passed_over(0));
  EXPECT_FALSE(order.passed_over(4));
  order.begin();
  EXPECT_FALSE(order.passed_over(1));
}

TEST_F(ReadyOrderTest, FollowsTheLastStepThatWentToItsEnd) {
  step({5, 1, 3});
  order.begin();
  order.ready(2);  // a step that is not learned
  order.begin();
  EXPECT_EQ(order.next(), 5U);
  step({});
  order.begin();
  EXPECT_EQ(order.next(), 5U);
  step({5, 1, 3, 2});
  step({5, 1, 2});
  order.begin();
  EXPECT_EQ(order.next(), 5U);
  EXPECT_EQ(order.next(), 1U);
  EXPECT_EQ(order.next(), 2U);
  EXPECT_EQ(order.next(), std::nullopt);
  order.ready(2);
  EXPECT_TRUE(order.passed_over(1));
  EXPECT_FALSE(order.passed_over(3));
}

TEST_F(ReadyOrderTest, ForetellsNothingAfterAStepThatWentAnotherWay) {
  step({5, 1, 3, 0});
  step({0, 3, 1, 5});
  order.begin();
  EXPECT_EQ(order.next(), std::nullopt);
  step({0, 3, 1, 5});
  order.begin();
  EXPECT_EQ(order.next(), 0U);
  // Two sets that take turns.
  step({4, 2});
  step({0, 3, 1, 5});
  order.begin();
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST_F(ReadyOrderTest, BearsAFewThatChangePlaces) {
  step({0, 1, 2, 3, 4, 5});
  step({0, 2, 1, 3, 4, 5});
  order.begin();
  EXPECT_EQ(order.next(), 0U);
  EXPECT_EQ(order.next(), 2U);
}

}  // namespace
}  // namespace sluice::plan
