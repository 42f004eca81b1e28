#include "io/drive_meter.hpp"

#include <gtest/gtest.h>

namespace sluice::io {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(RateMeter, CountsOnlyTheTimeWithSomethingInFlight) {
  RateMeter meter;
  EXPECT_EQ(meter.bytes_per_s(0), 0);
  for (std::int64_t second = 0; second < 3; ++second) {
    const std::int64_t begin_ns = second * 1000 * kMs;
    meter.start(begin_ns);
    meter.start(begin_ns + kMs);
    meter.finish(begin_ns + 2 * kMs, 1000);
    meter.finish(begin_ns + 4 * kMs, 3000);
  }
  EXPECT_DOUBLE_EQ(meter.bytes_per_s(5000 * kMs), 1e6);  // 12 000 bytes in 12 ms
  EXPECT_EQ(meter.in_flight(), 0u);
}

TEST(RateMeter, ForgetsHowTheDriveWasAHalfSecondAgo) {
  RateMeter meter;
  std::int64_t now_ns = 0;
  const auto run = [&](int pieces, std::int64_t each_ns) {
    for (int i = 0; i < pieces; ++i) {
      meter.start(now_ns);
      now_ns += each_ns;
      meter.finish(now_ns, 1'000'000);
    }
  };
  run(2000, kMs);  // 1 GB/s for 2 s
  EXPECT_NEAR(meter.bytes_per_s(now_ns), 1e9, 1e6);
  run(500, 4 * kMs);  // 0.25 GB/s for 2 s
  EXPECT_NEAR(meter.bytes_per_s(now_ns), 0.25e9, 0.02e9);
  EXPECT_GT(meter.bytes_per_s(now_ns), 0.25e9);
}

TEST(RateMeter, ADriveThatHangsFallsAndComesBack) {
  RateMeter meter;
  meter.start(0);
  meter.finish(10 * kMs, 10'000'000);
  meter.start(10 * kMs);
  EXPECT_NEAR(meter.bytes_per_s(10 * kMs), 1e9, 1);
  EXPECT_NEAR(meter.bytes_per_s(10'000 * kMs), 1e6, 1);
  std::int64_t now_ns = 60'000 * kMs;
  meter.finish(now_ns, 1'000'000);
  for (int i = 0; i < 2000; ++i) {
    meter.start(now_ns);
    now_ns += kMs;
    meter.finish(now_ns, 1'000'000);
  }
  EXPECT_NEAR(meter.bytes_per_s(now_ns), 1e9, 0.02e9);
}

}  // namespace
}  // namespace sluice::io
