#include "trainer/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace sluice::trainer {
namespace {

using Work = std::function<void(std::size_t index, std::size_t thread)>;

// Gives way to other threads for some ten microseconds, which is what the next piece of work usually takes to
// come; then sleeps until `value` is another than `old`.
void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int turn = 0; turn < 50 && value.load() == old; ++turn) std::this_thread::yield();
  value.wait(old);
}

class Pool {
 public:
  explicit Pool(std::size_t count) : count_(count) {
    for (std::size_t thread = 1; thread < count; ++thread)
      threads_.emplace_back([this, thread] { serve(thread); });
  }

  ~Pool() {
    ended_ = true;
    start();
    for (std::thread& thread : threads_) thread.join();
  }

  std::size_t count() const { return count_; }

  void run(std::size_t items, const Work& work) {
    items_ = items;
    work_ = &work;
    busy_ = static_cast<std::uint32_t>(threads_.size());
    start();
    do_part(0);
    for (std::uint32_t left = busy_; left > 0; left = busy_) wait_for_change(busy_, left);
  }

 private:
  void start() {
    ++round_;
    round_.notify_all();
  }

  void serve(std::size_t thread) {
    for (std::uint32_t round = 0;;) {
      wait_for_change(round_, round);
      ++round;
      if (ended_) return;
      do_part(thread);
      if (--busy_ == 0) busy_.notify_all();
    }
  }

  void do_part(std::size_t thread) const {
    const std::size_t end = items_ * (thread + 1) / count_;
    for (std::size_t index = items_ * thread / count_; index < end; ++index) (*work_)(index, thread);
  }

  const std::size_t count_;
  std::size_t items_ = 0;
  const Work* work_ = nullptr;
  bool ended_ = false;  // written before a round starts, read after
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> busy_{0};  // threads of this round that are not done
  std::vector<std::thread> threads_;
};

thread_local std::unique_ptr<Pool> t_pool;  // null: one thread

}  // namespace

void set_threads(std::uint32_t count) {
  const std::size_t wanted = count == 0 ? std::max(1U, std::thread::hardware_concurrency()) : count;
  if (wanted != threads()) t_pool = wanted == 1 ? nullptr : std::make_unique<Pool>(wanted);
}

std::size_t threads() { return t_pool ? t_pool->count() : 1; }

void for_each(std::size_t count, const Work& work) {
  if (!t_pool) {
    for (std::size_t index = 0; index < count; ++index) work(index, 0);
    return;
  }
  std::unique_ptr<Pool> pool = std::move(t_pool);  // what `work` calls stays on its thread
  pool->run(count, work);
  t_pool = std::move(pool);
}

}  // namespace sluice::trainer
