// What every device does; each device adds a Harness.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "sluice/device.hpp"
#include "support/device/sim_device.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// Makes one kind of device and lets its copies finish.
class Harness {
 public:
  virtual ~Harness() = default;
  virtual std::shared_ptr<Device> make(std::uint64_t capacity_bytes) = 0;
  virtual std::function<void()> on_finished() = 0;
  // Returns when a copy may have finished since the last call.
  virtual void await() = 0;
};

class HostHarness final : public Harness {
 public:
  explicit HostHarness(std::uint32_t copy_threads) : copy_threads_(copy_threads) {}

  std::shared_ptr<Device> make(std::uint64_t capacity_bytes) override {
    return *make_host_device({.capacity_bytes = capacity_bytes, .copy_threads = copy_threads_});
  }
  std::function<void()> on_finished() override {
    return [this] {
      const std::lock_guard lock(mutex_);
      ++finished_;
      changed_.notify_one();
    };
  }
  void await() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_ != seen_; });
    ++seen_;
  }

 private:
  const std::uint32_t copy_threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t finished_ = 0;
  std::uint64_t seen_ = 0;
};

// Completes copies in an order drawn from a seed.
class SimHarness final : public Harness {
 public:
  explicit SimHarness(std::uint32_t seed) : random_(seed) {}

  std::shared_ptr<Device> make(std::uint64_t capacity_bytes) override {
    return std::make_shared<sim::SimDevice>(
        [this](std::function<void()> task) { posted_.push_back(std::move(task)); },
        sim::SimDeviceOptions{.capacity_bytes = capacity_bytes});
  }
  std::function<void()> on_finished() override { return {}; }
  void await() override {
    ASSERT_FALSE(posted_.empty());
    std::swap(posted_[random_() % posted_.size()], posted_.back());
    const std::function<void()> task = std::move(posted_.back());
    posted_.pop_back();
    task();
  }

 private:
  std::mt19937 random_;
  std::vector<std::function<void()>> posted_;
};

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Harness>()> harness;
};

class DeviceConformance : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<DeviceSession> open(Device& device, std::uint64_t arena_bytes) {
    Result<std::unique_ptr<DeviceSession>> session =
        device.open({.arena_bytes = arena_bytes, .on_finished = harness_->on_finished()});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    return session.ok() ? std::move(session).value() : nullptr;
  }

  DeviceCopy* next_finished(DeviceSession& session) {
    while (true) {
      if (DeviceCopy* copy = session.poll()) return copy;
      harness_->await();
    }
  }

  std::unique_ptr<Harness> harness_ = GetParam().harness();
};

std::vector<std::byte> random_bytes(std::mt19937& random, std::uint64_t bytes) {
  std::vector<std::uint32_t> words(bytes / 4 + 1);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  std::vector<std::byte> data(bytes);
  if (bytes != 0) std::memcpy(data.data(), words.data(), bytes);
  return data;
}

TEST_P(DeviceConformance, ArenaIsExactAlignedAndReported) {
  const auto device = harness_->make(UINT64_MAX);
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4096}, 3 * kMiB + 256}) {
    const auto session = open(*device, bytes);
    EXPECT_EQ(session->arena().size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(session->arena().data()) % 4096, 0u);
    EXPECT_TRUE(session->host_accessible());
    EXPECT_TRUE(session->backing().starts_with("huge pages") || session->backing() == "4 KiB pages")
        << session->backing();
  }
  EXPECT_EQ(device->location(), Location::kHost);
  EXPECT_FALSE(device->name().empty());
}

TEST_P(DeviceConformance, CopiesOfEveryLengthArriveInBothDirections) {
  std::mt19937 random(1);
  const auto device = harness_->make(UINT64_MAX);
  const auto session = open(*device, 8 * kMiB);
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{255}, kMiB - 1, kMiB, kMiB + 1, 2 * kMiB + 3}) {
    SCOPED_TRACE(bytes);
    const std::vector<std::byte> source = random_bytes(random, bytes);
    std::vector<std::byte> target(bytes);
    DeviceCopy in{.target = session->arena().data() + 256, .source = source.data(), .bytes = bytes};
    session->submit(in);
    ASSERT_EQ(next_finished(*session), &in);
    EXPECT_TRUE(in.status.ok());
    DeviceCopy out{.target = target.data(), .source = session->arena().data() + 256, .bytes = bytes};
    session->submit(out);
    ASSERT_EQ(next_finished(*session), &out);
    EXPECT_EQ(source, target);
  }
  EXPECT_EQ(session->poll(), nullptr);
}

TEST_P(DeviceConformance, EachCopyComesBackOnceWithItsBytesAndItsOwner) {
  std::mt19937 random(2);
  const auto device = harness_->make(UINT64_MAX);
  constexpr std::uint64_t kCopies = 64, kStride = 128 * 1024;
  const auto session = open(*device, kCopies * kStride);
  std::vector<std::vector<std::byte>> sources;
  sources.reserve(kCopies);
  std::vector<DeviceCopy> copies(kCopies);
  for (std::uint64_t i = 0; i < kCopies; ++i) {
    sources.push_back(random_bytes(random, i % 7 == 0 ? 0 : random() % kStride));
    copies[i] = {.target = session->arena().data() + i * kStride,
                 .source = sources[i].data(),
                 .bytes = sources[i].size(),
                 .status = Status(Code::kInternal, "not finished"),
                 .owner = &sources[i]};
    session->submit(copies[i]);
  }
  std::map<DeviceCopy*, int> seen;
  for (std::uint64_t i = 0; i < kCopies; ++i) ++seen[next_finished(*session)];
  EXPECT_EQ(seen.size(), kCopies);
  EXPECT_EQ(session->poll(), nullptr);
  for (std::uint64_t i = 0; i < kCopies; ++i) {
    EXPECT_TRUE(copies[i].status.ok());
    EXPECT_EQ(copies[i].owner, &sources[i]);
    EXPECT_TRUE(sources[i].empty() ||
                std::memcmp(sources[i].data(), copies[i].target, sources[i].size()) == 0);
  }
}

TEST_P(DeviceConformance, FinishedCopyMayBeSubmittedAgain) {
  const auto device = harness_->make(UINT64_MAX);
  const auto session = open(*device, kMiB);
  std::uint64_t value = 0;
  DeviceCopy copy{.target = session->arena().data(), .source = &value, .bytes = sizeof value};
  for (value = 1; value <= 200; ++value) {
    session->submit(copy);
    ASSERT_EQ(next_finished(*session), &copy);
    std::uint64_t arrived = 0;
    std::memcpy(&arrived, session->arena().data(), sizeof arrived);
    ASSERT_EQ(arrived, value);
  }
}

TEST_P(DeviceConformance, DestructorDrainsWhatIsInFlight) {
  std::mt19937 random(3);
  const auto device = harness_->make(UINT64_MAX);
  auto session = open(*device, 4 * kMiB);
  std::memset(session->arena().data(), 7, 4 * kMiB);
  std::vector<std::byte> targets[3];
  DeviceCopy copies[3];
  for (int i = 0; i < 3; ++i) {
    targets[i].resize(4 * kMiB);
    copies[i] = {.target = targets[i].data(), .source = session->arena().data(), .bytes = targets[i].size()};
    session->submit(copies[i]);
  }
  session.reset();
  const std::vector<std::byte> sevens(4 * kMiB, std::byte{7});
  for (const auto& target : targets) EXPECT_EQ(std::memcmp(target.data(), sevens.data(), target.size()), 0);
}

TEST_P(DeviceConformance, SessionsShareTheCapacityAndGiveItBack) {
  const auto device = harness_->make(10 * kMiB);
  EXPECT_EQ(device->available_bytes(), 10 * kMiB);
  auto first = open(*device, 6 * kMiB);
  EXPECT_EQ(device->available_bytes(), 4 * kMiB);
  const auto refused = device->open({.arena_bytes = 4 * kMiB + 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  for (const std::uint64_t figure : {4 * kMiB + 1, 4 * kMiB, 10 * kMiB})
    EXPECT_NE(refused.status().message().find(std::to_string(figure)), std::string::npos)
        << refused.status().message();
  const auto second = open(*device, 4 * kMiB);
  EXPECT_EQ(device->available_bytes(), 0u);
  EXPECT_NE(first->arena().data(), second->arena().data());
  first.reset();
  EXPECT_EQ(device->available_bytes(), 6 * kMiB);
}

TEST_P(DeviceConformance, SessionsCopyIndependently) {
  const auto device = harness_->make(UINT64_MAX);
  const auto first = open(*device, kMiB);
  const auto second = open(*device, kMiB);
  const std::uint64_t one = 1, two = 2;
  DeviceCopy to_first{.target = first->arena().data(), .source = &one, .bytes = sizeof one};
  DeviceCopy to_second{.target = second->arena().data(), .source = &two, .bytes = sizeof two};
  first->submit(to_first);
  second->submit(to_second);
  EXPECT_EQ(next_finished(*second), &to_second);
  EXPECT_EQ(next_finished(*first), &to_first);
  EXPECT_EQ(first->poll(), nullptr);
  EXPECT_EQ(second->poll(), nullptr);
}

TEST_P(DeviceConformance, SessionOutlivesItsDevice) {
  auto device = harness_->make(2 * kMiB);
  const auto session = open(*device, kMiB);
  device.reset();
  const std::uint64_t value = 42;
  DeviceCopy copy{.target = session->arena().data(), .source = &value, .bytes = sizeof value};
  session->submit(copy);
  EXPECT_EQ(next_finished(*session), &copy);
}

TEST_P(DeviceConformance, MoreThanTheMachineHasIsRefusedByOpenAndNothingStaysReserved) {
  const auto device = harness_->make(UINT64_MAX);
  const auto session = device->open({.arena_bytes = std::uint64_t{1} << 60});
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(device->available_bytes(), UINT64_MAX);
}

TEST_P(DeviceConformance, OnlyTheNullStreamExists) {
  const auto device = harness_->make(UINT64_MAX);
  const auto session = open(*device, kMiB);
  EXPECT_TRUE(session->wait_for({}).ok());
  int not_a_stream = 0;
  EXPECT_EQ(session->wait_for({.native = &not_a_stream}).code(), Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceConformance,
                         ::testing::Values(Kind{"Host1", [] { return std::make_unique<HostHarness>(1); }},
                                           Kind{"Host2", [] { return std::make_unique<HostHarness>(2); }},
                                           Kind{"Host5", [] { return std::make_unique<HostHarness>(5); }},
                                           Kind{"SimSeed1", [] { return std::make_unique<SimHarness>(1); }},
                                           Kind{"SimSeed2", [] { return std::make_unique<SimHarness>(2); }}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace sluice
