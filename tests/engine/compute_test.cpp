#include "engine/compute.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <vector>

namespace sluice::engine {
namespace {

/// Counts the wakes, and waits for them.
class Wakes {
 public:
  void wake() {
    std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void await(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

/// Writes down when it ran.
class NotingTask : public ComputeTask {
 public:
  enum class Place : std::uint8_t { kFirst, kBackground };
  NotingTask(std::vector<int>& ran, int number, Place place) : ran_(ran), number_(number), place_(place) {}
  std::uint32_t tiles() const override { return 1; }
  void run(std::uint32_t) override { ran_.push_back(number_); }
  void done() override {}
  bool in_background() const override { return place_ == Place::kBackground; }

 private:
  std::vector<int>& ran_;
  const int number_;
  const Place place_;
};

/// Occupies the threads until it is let go.
class LongTask : public ComputeTask {
 public:
  std::uint32_t tiles() const override { return 1; }
  void run(std::uint32_t) override {
    runs_ = true;
    runs_.notify_all();
    let_go_.wait(false);
  }
  void done() override {}
  void await_run() { runs_.wait(false); }
  void let_go() {
    let_go_ = true;
    let_go_.notify_all();
  }

 private:
  std::atomic<bool> runs_ = false, let_go_ = false;
};

TEST(ThreadCompute, RunsWhatIsInTheBackgroundLastAndBothInOrder) {
  Wakes wakes;
  auto compute = make_thread_compute(1, [&] { wakes.wake(); });
  ASSERT_TRUE(compute.ok()) << compute.status().to_string();
  std::vector<int> ran;  // by one thread at a time
  LongTask first;
  using Place = NotingTask::Place;
  NotingTask one(ran, 1, Place::kBackground), two(ran, 2, Place::kBackground);
  NotingTask three(ran, 3, Place::kFirst), four(ran, 4, Place::kFirst);
  (*compute)->submit(first);
  first.await_run();
  for (ComputeTask* task : {&one, &two, &three, &four}) (*compute)->submit(*task);
  first.let_go();
  wakes.await(5);
  EXPECT_EQ(ran, (std::vector<int>{3, 4, 1, 2}));
  std::set<ComputeTask*> polled;
  while (ComputeTask* task = (*compute)->poll()) EXPECT_TRUE(polled.insert(task).second);
  EXPECT_EQ(polled, (std::set<ComputeTask*>{&first, &one, &two, &three, &four}));
}

}  // namespace
}  // namespace sluice::engine
