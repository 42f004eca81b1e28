#include "engine/compute.hpp"

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "memory/thread.hpp"

namespace sluice::engine {
namespace {

/// One thread takes the tasks in turn; workers of oneTBB join it for the tiles of each. That thread is one of the
/// arena's own, so the shared workers, one fewer than there are CPUs, are enough for every CPU.
class ThreadCompute final : public Compute {
 public:
  ThreadCompute(std::uint32_t threads, std::function<void()> wake)
      : threads_(threads),
        wake_(std::move(wake)),
        arena_(static_cast<int>(threads), /*reserved_for_masters=*/1) {}

  ~ThreadCompute() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    submitted_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    Result<std::thread> thread =
        memory::start_thread("sluice-compute", [this] { arena_.execute([this] { run(); }); });
    if (!thread.ok()) return thread.status();
    thread_ = std::move(thread).value();
    return {};
  }

  void submit(ComputeTask& task) override {
    {
      std::lock_guard lock(mutex_);
      (task.in_background() ? background_ : waiting_).push_back(&task);
    }
    submitted_.notify_one();
  }

  ComputeTask* poll() override {
    std::lock_guard lock(mutex_);
    if (finished_.empty()) return nullptr;
    ComputeTask* task = finished_.front();
    finished_.pop_front();
    return task;
  }

  std::uint32_t threads() const override { return threads_; }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      submitted_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !background_.empty(); });
      std::deque<ComputeTask*>& first = waiting_.empty() ? background_ : waiting_;
      if (first.empty()) return;
      ComputeTask& task = *first.front();
      first.pop_front();
      lock.unlock();
      oneapi::tbb::parallel_for(std::uint32_t{0}, task.tiles(), [&](std::uint32_t tile) { task.run(tile); });
      task.finish();
      lock.lock();
      finished_.push_back(&task);
      lock.unlock();
      wake_();
    }
  }

  const std::uint32_t threads_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable submitted_;
  std::deque<ComputeTask*> waiting_, background_;  // guarded by mutex_
  std::deque<ComputeTask*> finished_;              // guarded by mutex_
  bool stopping_ = false;                          // guarded by mutex_
  oneapi::tbb::task_arena arena_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Compute>> make_thread_compute(std::uint32_t threads, std::function<void()> wake) {
  // oneTBB's default concurrency is the affinity mask's.
  const auto available = static_cast<std::uint32_t>(oneapi::tbb::info::default_concurrency());
  auto compute = std::make_unique<ThreadCompute>(threads == 0 ? available : std::min(threads, available),
                                                 std::move(wake));
  SLUICE_RETURN_IF_ERROR(compute->start());
  return std::unique_ptr<Compute>(std::move(compute));
}

}  // namespace sluice::engine
