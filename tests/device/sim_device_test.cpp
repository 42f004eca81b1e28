#include "support/device/sim_device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace sluice::sim {
namespace {

struct Posted {
  SimDevice::Post post() {
    return [this](std::function<void()> task) { tasks.push_back(std::move(task)); };
  }
  void run(std::size_t index) {
    std::exchange(tasks.at(index), [] {})();
  }

  std::deque<std::function<void()>> tasks;
};

TEST(SimDevice, TargetIsSpoiledUntilTheTestCompletesTheCopy) {
  Posted posted;
  SimDevice device(posted.post());
  const auto session = device.open({.arena_bytes = 4096});
  std::uint8_t source = 1;
  DeviceCopy copy{.target = (*session)->arena().data(), .source = &source, .bytes = 1};
  (*session)->submit(copy);
  EXPECT_EQ((*session)->poll(), nullptr);
  EXPECT_EQ((*session)->arena()[0], std::byte{0xCD});
  source = 2;  // a source that changes too early is seen
  posted.run(0);
  EXPECT_EQ((*session)->poll(), &copy);
  EXPECT_EQ((*session)->arena()[0], std::byte{2});
}

TEST(SimDevice, CopiesFinishInTheTestsOrder) {
  Posted posted;
  SimDevice device(posted.post());
  const auto session = device.open({.arena_bytes = 4096});
  const std::byte source{};
  DeviceCopy copies[3];
  for (DeviceCopy& copy : copies) {
    copy = {.target = (*session)->arena().data(), .source = &source, .bytes = 1};
    (*session)->submit(copy);
  }
  for (const std::size_t i : {2u, 0u, 1u}) {
    posted.run(i);
    EXPECT_EQ((*session)->poll(), &copies[i]);
  }
  EXPECT_EQ(device.copies(), 3u);
}

TEST(SimDevice, ChosenCopyFailsWithASpoiledTarget) {
  Posted posted;
  SimDevice device(posted.post(), {.fail_copy = 2});
  const auto session = device.open({.arena_bytes = 4096});
  const std::byte source{1};
  DeviceCopy copies[3];
  for (int i = 0; i < 3; ++i) {
    copies[i] = {.target = (*session)->arena().data() + i, .source = &source, .bytes = 1};
    (*session)->submit(copies[i]);
    posted.run(static_cast<std::size_t>(i));
    EXPECT_EQ((*session)->poll(), &copies[i]);
    EXPECT_EQ(copies[i].status.code(), i == 1 ? Code::kIoError : Code::kOk);
  }
  EXPECT_EQ((*session)->arena()[1], std::byte{0xEE});
  EXPECT_EQ((*session)->arena()[2], std::byte{1});
}

TEST(SimDevice, OnFinishedIsCalledWhenPollHasTheCopy) {
  Posted posted;
  SimDevice device(posted.post());
  Result<std::unique_ptr<DeviceSession>> session(Code::kUnavailable, "not open");
  DeviceCopy* seen = nullptr;
  session = device.open({.arena_bytes = 4096, .on_finished = [&] { seen = (*session)->poll(); }});
  DeviceCopy copy;
  (*session)->submit(copy);
  EXPECT_EQ(seen, nullptr);
  posted.run(0);
  EXPECT_EQ(seen, &copy);
}

TEST(SimDevice, WhatIsRunAfterItsSessionIsGoneDoesNothing) {
  Posted posted;
  SimDevice device(posted.post());
  auto session = device.open({.arena_bytes = 4096});
  {
    std::byte target{};
    const std::byte source{1};
    DeviceCopy copy{.target = &target, .source = &source, .bytes = 1};
    (*session)->submit(copy);
    (*session).reset();
    EXPECT_EQ(target, std::byte{1});
  }
  posted.run(0);
}

}  // namespace
}  // namespace sluice::sim
