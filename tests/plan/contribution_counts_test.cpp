#include "plan/contribution_counts.hpp"

#include <gmock/gmock.h>

namespace sluice::plan {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr auto kOnce = ContributionCounts::Often::kOnceAStep;
constexpr std::uint32_t kUnknown = ContributionCounts::kUnknown;

TEST(ContributionCounts, AreOneANameAndMicroBatchAtFirst) {
  const ContributionCounts counts({{}, {.names = 2}, {.names = 1, .often = kOnce}});
  EXPECT_THAT(counts.expected(1), ElementsAre(1, 2, 1));
  EXPECT_THAT(counts.expected(4), ElementsAre(4, 8, 1));
}

TEST(ContributionCounts, AreUnknownWithoutANumberOfMicroBatches) {
  ContributionCounts counts({{}, {.names = 1, .often = kOnce}});
  EXPECT_THAT(counts.expected(0), Each(kUnknown));
  counts.learn(0, {3, 1});
  EXPECT_THAT(counts.expected(0), Each(kUnknown));
}

TEST(ContributionCounts, AreThoseOfTheFirstStepOfAsManyMicroBatches) {
  ContributionCounts counts({{}, {}, {}});
  counts.learn(2, {0, 1, 5});
  EXPECT_THAT(counts.expected(2), ElementsAre(0, 1, 5));
  EXPECT_THAT(counts.expected(3), ElementsAre(3, 3, 3));
  counts.learn(0, {7, 7, 7});
  EXPECT_THAT(counts.expected(2), ElementsAre(0, 1, 5));
}

TEST(ContributionCounts, RiseAtOnce) {
  ContributionCounts counts({{}, {}});
  counts.learn(2, {0, 1});
  counts.learn(2, {1, 3});
  EXPECT_THAT(counts.expected(2), ElementsAre(1, 3));
}

TEST(ContributionCounts, FallToTheMostOfSixteenStepsInARowThatHadFewer) {
  ContributionCounts counts({{}, {}});
  counts.learn(4, {4, 4});
  for (std::uint32_t step = 0; step < 15; ++step) {
    counts.learn(4, {step == 7 ? 2U : 1U, 3});
    EXPECT_THAT(counts.expected(4), ElementsAre(4, 4)) << "after " << step + 1 << " steps of fewer";
  }
  counts.learn(4, {0, 4});
  EXPECT_THAT(counts.expected(4), ElementsAre(2, 4));  // the second had its most again: it starts anew
  for (int step = 0; step < 15; ++step) counts.learn(4, {2, 1});
  EXPECT_THAT(counts.expected(4), ElementsAre(2, 4));
  counts.learn(4, {2, 1});
  EXPECT_THAT(counts.expected(4), ElementsAre(2, 1));
}

TEST(ContributionCounts, StayWhereTheyAreWhileThoseOfStepsAlternate) {
  ContributionCounts counts(std::vector<ContributionCounts::Item>{{}});
  for (std::uint32_t step = 0; step < 40; ++step) {
    counts.learn(2, {1 + step % 2});
    EXPECT_THAT(counts.expected(2), ElementsAre(step == 0 ? 1 : 2));
  }
}

TEST(ContributionCounts, OfFourNumbersOfMicroBatchesAreRemembered) {
  ContributionCounts counts(std::vector<ContributionCounts::Item>{{}});
  for (const std::uint32_t number : {11U, 12U, 13U, 14U}) counts.learn(number, {number - 10});
  for (const std::uint32_t number : {11U, 12U, 13U, 14U})
    EXPECT_THAT(counts.expected(number), ElementsAre(number - 10));
  counts.learn(11, {1});
  counts.learn(15, {5});  // in place of the one that a step had longest ago
  EXPECT_THAT(counts.expected(11), ElementsAre(1));
  EXPECT_THAT(counts.expected(12), ElementsAre(12));
  EXPECT_THAT(counts.expected(15), ElementsAre(5));
}

TEST(ContributionCounts, BeyondWhatCanBeCountedAreUnknown) {
  const ContributionCounts counts(std::vector<ContributionCounts::Item>{{.names = 3}});
  EXPECT_THAT(counts.expected(kUnknown / 2), ElementsAre(kUnknown));
}

}  // namespace
}  // namespace sluice::plan
