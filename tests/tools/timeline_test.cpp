#include "tools/nvme/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tools/nvme/throughput.hpp"

namespace sluice::tools {
namespace {

constexpr double kSecond = 1e9;

TEST(Timeline, KeepsEveryByteOfAnyLengthInBoundedBins) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Timeline timeline;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t some = random() % 1'000'000;
    timeline.add(static_cast<std::int64_t>(random() >> (1 + random() % 50)), some);
    bytes += some;
  }
  EXPECT_EQ(timeline.bytes(), bytes);
  EXPECT_NEAR(timeline.bytes_between(0, 1e19), static_cast<double>(bytes), 1);
}

TEST(Timeline, TwoOfDifferentLengthsBecomeOne) {
  Timeline shorter;
  Timeline longer;
  shorter.add(10, 5);
  longer.add(3'600'000'000'000, 7);
  longer.add(20, 1);
  Timeline both = shorter;
  both.merge(longer);
  longer.merge(shorter);
  for (const Timeline* one : {&both, &longer}) {
    EXPECT_EQ(one->bytes(), 13U);
    EXPECT_NEAR(one->bytes_between(0, kSecond), 6, 1e-9);
  }
}

TEST(Throughput, OfASteadyDriveIsTheSameEverywhere) {
  Timeline timeline;
  for (std::int64_t ms = 0; ms < 4000; ++ms) timeline.add(ms * 1'000'000, 1 << 20);
  const Throughput speed = throughput_of(timeline, 4);
  EXPECT_NEAR(speed.mean, 1000.0 / 1024, 0.01);
  EXPECT_NEAR(speed.slowest_tenth, speed.mean, 0.01);
  EXPECT_NEAR(speed.sustained, speed.mean, 0.01);
  EXPECT_NEAR(speed.peak_second, speed.mean, 0.01);
  EXPECT_EQ(speed.per_second.size(), 4U);
}

TEST(Throughput, OfADriveWhoseCacheFillsIsSustainedBelowItsPeak) {
  Timeline timeline;
  for (std::int64_t ms = 0; ms < 6000; ++ms) timeline.add(ms * 1'000'000, ms < 2000 ? 4 << 20 : 1 << 20);
  const Throughput speed = throughput_of(timeline, 6);
  EXPECT_NEAR(speed.peak_second, 4000.0 / 1024, 0.05);
  EXPECT_NEAR(speed.sustained, 1000.0 / 1024, 0.05);
  EXPECT_NEAR(speed.mean, 2000.0 / 1024, 0.05);
  EXPECT_NEAR(speed.slowest_tenth, 1000.0 / 1024, 0.05);
}

TEST(Throughput, OfAMomentHasOneSecondAndNoInfinities) {
  Timeline timeline;
  timeline.add(500, 4096);
  const Throughput speed = throughput_of(timeline, 1e-6);
  EXPECT_THAT(speed.per_second, testing::ElementsAre(speed.mean));
  EXPECT_LE(speed.slowest_tenth, speed.mean);
  EXPECT_EQ(throughput_of({}, 1).mean, 0);
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace sluice::tools
