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

TEST(ContributionCounts, AreThoseOfTheLastStepOfAsManyMicroBatches) {
  ContributionCounts counts({{}, {}, {}});
  counts.learn(2, {0, 1, 5});
  EXPECT_THAT(counts.expected(2), ElementsAre(0, 1, 5));
  EXPECT_THAT(counts.expected(3), ElementsAre(3, 3, 3));
  counts.learn(0, {7, 7, 7});
  EXPECT_THAT(counts.expected(2), ElementsAre(0, 1, 5));
  counts.learn(2, {1, 1, 1});
  EXPECT_THAT(counts.expected(2), ElementsAre(1, 1, 1));
}

TEST(ContributionCounts, BeyondWhatCanBeCountedAreUnknown) {
  const ContributionCounts counts(std::vector<ContributionCounts::Item>{{.names = 3}});
  EXPECT_THAT(counts.expected(kUnknown / 2), ElementsAre(kUnknown));
}

}  // namespace
}  // namespace sluice::plan
