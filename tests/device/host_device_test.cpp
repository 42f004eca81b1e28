#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <semaphore>
#include <vector>

#include "sluice/device.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(HostDevice, CopyThreadsOutOfRangeAreRefusedByName) {
  for (const std::uint32_t threads : {0u, 65u}) {
    const auto device = make_host_device({.copy_threads = threads});
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(device.status().message(), "copy_threads: " + std::to_string(threads) + " is not in 1..64");
  }
}

TEST(HostDevice, OnFinishedIsCalledOnceACopyWithSignalsBlocked) {
  std::counting_semaphore<> finished{0};
  std::atomic<int> calls{0};
  std::atomic<bool> blocked{true};
  const auto device = make_host_device({.copy_threads = 3});
  const auto session = (*device)->open({.arena_bytes = 4 * kMiB, .on_finished = [&] {
                                          sigset_t mask;
                                          pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                                          if (sigismember(&mask, SIGTERM) != 1) blocked = false;
                                          ++calls;
                                          finished.release();
                                        }});
  std::vector<std::byte> source(4 * kMiB);
  std::vector<DeviceCopy> copies(100);
  for (DeviceCopy& copy : copies) {
    copy = {.target = (*session)->arena().data(), .source = source.data(), .bytes = 0};
    (*session)->submit(copy);
  }
  for (std::size_t i = 0; i < copies.size(); ++i) {
    finished.acquire();
    EXPECT_NE((*session)->poll(), nullptr);
  }
  EXPECT_EQ(calls, 100);
  EXPECT_TRUE(blocked);
}

TEST(HostDevice, SeveralThreadsShareOneLargeCopyAndMixWithSmallOnes) {
  std::counting_semaphore<> finished{0};
  const auto device = make_host_device({.copy_threads = 4});
  const auto session =
      (*device)->open({.arena_bytes = 40 * kMiB, .on_finished = [&] { finished.release(); }});
  std::vector<std::uint64_t> source(32 * kMiB / 8);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = i * 0x9E3779B97F4A7C15u;
  std::byte* arena = (*session)->arena().data();
  for (int round = 0; round < 3; ++round) {
    std::memset(arena, 0, 33 * kMiB);
    DeviceCopy large{.target = arena, .source = source.data(), .bytes = 32 * kMiB};
    DeviceCopy small{.target = arena + 32 * kMiB, .source = source.data(), .bytes = 4096};
    (*session)->submit(large);
    (*session)->submit(small);
    for (int i = 0; i < 2; ++i) {
      finished.acquire();
      EXPECT_NE((*session)->poll(), nullptr);
    }
    EXPECT_EQ(std::memcmp(arena, source.data(), 32 * kMiB), 0);
    EXPECT_EQ(std::memcmp(arena + 32 * kMiB, source.data(), 4096), 0);
  }
}

TEST(HostDevice, ForkedChildDropsItsCopyOfASessionWithoutWaiting) {
  const auto device = make_host_device({.copy_threads = 2});
  auto session = (*device)->open({.arena_bytes = kMiB});
  ASSERT_TRUE(session.ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    (*session).reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::uint64_t value = 1;
  DeviceCopy copy{.target = (*session)->arena().data(),
                  .source = &value,
                  .bytes = sizeof value,
                  .status = Status(Code::kInternal, "not finished")};
  (*session)->submit(copy);
  (*session).reset();
  EXPECT_TRUE(copy.status.ok());
}

}  // namespace
}  // namespace sluice
