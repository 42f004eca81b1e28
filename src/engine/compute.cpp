#include "engine/compute.hpp"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

namespace sluice::engine {
namespace {

/// More than any machine has; a larger number is a mistake in the options.
constexpr std::uint32_t kMaxThreads = 4096;

class ThreadCompute final : public Compute {
 public:
  ThreadCompute(std::uint32_t threads, std::function<void()> wake)
      : threads_(threads),
        wake_(std::move(wake)),
        arena_(static_cast<int>(threads), /*reserved_for_masters=*/0) {
    arena_.initialize();
  }

  ~ThreadCompute() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return running_ == 0; });
  }

  void submit(ComputeTask& task) override {
    {
      std::lock_guard lock(mutex_);
      ++running_;
    }
    arena_.enqueue([this, &task] { run(task); });
  }

  ComputeTask* poll() override {
    std::lock_guard lock(mutex_);
    ComputeTask* task = std::exchange(finished_, nullptr);
    if (task != nullptr) finished_ = std::exchange(task->next, nullptr);
    return task;
  }

  std::uint32_t threads() const override { return threads_; }

 private:
  void run(ComputeTask& task) {
    oneapi::tbb::parallel_for(std::uint32_t{0}, task.tiles(), [&](std::uint32_t tile) { task.run(tile); });
    task.finish();
    std::lock_guard lock(mutex_);
    task.next = std::exchange(finished_, &task);
    // Under the lock: the destructor, and with it what wake_ refers to, waits for this thread to be out of
    // here.
    wake_();
    if (--running_ == 0) idle_.notify_all();
  }

  const std::uint32_t threads_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable idle_;
  ComputeTask* finished_ = nullptr;
  std::uint32_t running_ = 0;
  oneapi::tbb::task_arena arena_;
};

}  // namespace

Result<std::unique_ptr<Compute>> make_thread_compute(std::uint32_t threads, std::function<void()> wake) {
  if (threads > kMaxThreads)
    return Status(Code::kInvalidArgument,
                  "threads = " + std::to_string(threads) + ", accepted: 0.." + std::to_string(kMaxThreads));
  // oneTBB's default concurrency is the affinity mask's.
  const auto available = static_cast<std::uint32_t>(oneapi::tbb::info::default_concurrency());
  return std::unique_ptr<Compute>(std::make_unique<ThreadCompute>(
      threads == 0 ? available : std::min(threads, available), std::move(wake)));
}

}  // namespace sluice::engine
