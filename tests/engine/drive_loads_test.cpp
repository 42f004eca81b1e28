#include "engine/drive_loads.hpp"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

constexpr std::uint64_t kRecord = 12'000'000;

class DriveLoadsTest : public testing::Test {
 protected:
  void run(std::uint32_t drive, std::uint64_t bytes, double bytes_per_s) {
    loads_.begin(drive, bytes);
    now_ns_ += static_cast<std::int64_t>(static_cast<double>(bytes) / bytes_per_s * 1e9);
    loads_.end(drive, bytes);
  }

  std::int64_t now_ns_ = 0;
  DriveLoads loads_{{1e9, 1e9}, [this] { return now_ns_; }};
};

TEST_F(DriveLoadsTest, WhatADriveHasInHandMakesItLater) {
  EXPECT_DOUBLE_EQ(loads_.seconds_until(0, kRecord), 0.012);
  loads_.begin(0, kRecord);
  EXPECT_DOUBLE_EQ(loads_.seconds_until(0, kRecord), 0.024);
  EXPECT_DOUBLE_EQ(loads_.seconds_until(1, kRecord), 0.012);
}

TEST_F(DriveLoadsTest, ASlowDriveIsSeenToBeSlowAndToRecover) {
  for (int i = 0; i < 20; ++i) run(0, kRecord, 1e8);
  EXPECT_NEAR(loads_.bytes_per_s(0), 1e8, 1e7);
  EXPECT_EQ(loads_.bytes_per_s(1), 1e9);
  for (int i = 0; i < 200; ++i) run(0, kRecord, 1e9);
  EXPECT_NEAR(loads_.bytes_per_s(0), 1e9, 1e8);
}

TEST_F(DriveLoadsTest, ADriveWithLittleToDoShowsNothing) {
  for (int i = 0; i < 1000; ++i) run(0, 4096, 1e6);
  EXPECT_EQ(loads_.bytes_per_s(0), 1e9);
}

TEST_F(DriveLoadsTest, AnIdleTimeIsNotCounted) {
  for (int i = 0; i < 100; ++i) {
    run(0, kRecord, 2e9);
    now_ns_ += 1'000'000'000;
  }
  EXPECT_NEAR(loads_.bytes_per_s(0), 2e9, 2e8);
}

}  // namespace
}  // namespace sluice::engine
