#include "tools/nvme/latency_histogram.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

TEST(LatencyHistogram, QuantilesAreWithinOneSixtyFourthOfTheSortedValues) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  LatencyHistogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t value = random() >> (random() % 63);
    values.push_back(value);
    histogram.add(value);
  }
  std::sort(values.begin(), values.end());
  EXPECT_EQ(histogram.count(), values.size());
  EXPECT_EQ(histogram.max_ns(), values.back());
  for (const double part : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(values.size())));
    const std::uint64_t exact = values[rank - 1];
    const std::uint64_t measured = histogram.quantile_ns(part);
    EXPECT_GE(measured, exact) << part;
    EXPECT_LE(measured - exact, exact / 64) << part;
  }
}

TEST(LatencyHistogram, OctavesHoldEveryValueOnceAndTouch) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  LatencyHistogram one;
  LatencyHistogram other;
  std::vector<std::uint64_t> values = {0, 1, 2, 63, 64, 127, 128, UINT64_MAX};
  for (int i = 0; i < 1000; ++i) values.push_back(random() >> (random() % 63));
  for (std::size_t i = 0; i < values.size(); ++i) (i % 2 == 0 ? one : other).add(values[i]);
  one.merge(other);
  EXPECT_EQ(one.count(), values.size());
  EXPECT_EQ(one.max_ns(), UINT64_MAX);
  const std::vector<LatencyBucket> octaves = one.octaves();
  for (std::size_t i = 0; i < octaves.size(); ++i) {
    const LatencyBucket& octave = octaves[i];
    if (i > 0) {
      EXPECT_EQ(octaves[i - 1].below_ns, octave.from_ns);
    }
    const auto inside = std::count_if(values.begin(), values.end(), [&](std::uint64_t value) {
      return value >= octave.from_ns && (value < octave.below_ns || octave.below_ns == UINT64_MAX);
    });
    EXPECT_EQ(octave.count, static_cast<std::uint64_t>(inside)) << octave.from_ns;
  }
  EXPECT_TRUE(LatencyHistogram().octaves().empty());
}

TEST(LatencyHistogram, EmptyAndExtremeValuesAreTaken) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.quantile_ns(0.5), 0U);
  histogram.add(0);
  EXPECT_EQ(histogram.quantile_ns(1), 0U);
  histogram.add(UINT64_MAX);
  EXPECT_EQ(histogram.quantile_ns(1), UINT64_MAX);
  EXPECT_EQ(histogram.quantile_ns(0.5), 0U);
}

}  // namespace
}  // namespace sluice::tools
