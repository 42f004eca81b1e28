#include "store/deal.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/sim_world.hpp"

namespace sluice::store {
namespace {

TEST(Deal, EqualWeightsTakeTurns) {
  for (std::uint32_t drives = 1; drives <= 64; ++drives) {
    for (const double weight : {1.0, 0.1, 3.5e9}) {
      const std::vector<std::uint32_t> dealt = deal(1000, drives, std::vector<double>(drives, weight));
      for (std::uint32_t i = 0; i < dealt.size(); ++i) ASSERT_EQ(dealt[i], i % drives) << drives << " drives";
    }
    EXPECT_EQ(deal(100, drives, {}), deal(100, drives, std::vector<double>(drives, 7)));
  }
}

TEST(Deal, EveryPrefixHoldsEachDrivesShareToWithinOne) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    const std::uint64_t seed = sim::seed_or(round);
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::vector<double> weights(1 + random() % 8);
    for (double& weight : weights) weight = static_cast<double>(1 + random() % 1000) * 1e6;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const auto drives = static_cast<std::uint32_t>(weights.size());
    std::vector<double> counts(drives);
    double dealt = 0;
    for (const std::uint32_t drive : deal(2000, drives, weights)) {
      ASSERT_LT(drive, drives);
      ++counts[drive];
      ++dealt;
      for (std::uint32_t i = 0; i < drives; ++i)
        ASSERT_NEAR(counts[i], dealt * weights[i] / sum, 1 + 1e-6) << "drive " << i << " after " << dealt;
    }
  }
}

}  // namespace
}  // namespace sluice::store
