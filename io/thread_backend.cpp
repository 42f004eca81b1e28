#include "io/thread_backend.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "io/request_list.hpp"

namespace sluice::io {
namespace {

std::int64_t perform(const Request& request) {
  const auto offset = static_cast<off_t>(request.offset);
  ssize_t result = -1;
  switch (request.op) {
    case Op::kRead:
      result = ::pread(request.fd, request.buffer, request.bytes, offset);
      break;
    case Op::kWrite:
      result = ::pwrite(request.fd, request.buffer, request.bytes, offset);
      break;
    case Op::kFlush:
      result = ::fdatasync(request.fd);
      break;
    case Op::kDropCache:
      return -::posix_fadvise(request.fd, offset, request.bytes, POSIX_FADV_DONTNEED);
  }
  return result < 0 ? -errno : result;
}

/// Blocks every signal in this thread, and so in threads made meanwhile.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

Status bind(std::thread& thread, const std::vector<int>& cpus) {
  if (cpus.empty()) return Status();
  const auto [least, most] = std::minmax_element(cpus.begin(), cpus.end());
  if (*least < 0) return Status(Code::kInvalidArgument, fmt::format("cpus: {} is not a CPU", *least));
  const auto count = static_cast<std::size_t>(*most) + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  if (set == nullptr) return status_from_errno(ENOMEM, "binding I/O threads");
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  const int error = pthread_setaffinity_np(thread.native_handle(), bytes, set);
  CPU_FREE(set);
  if (error == 0) return Status();
  return Status(Code::kInvalidArgument,
                fmt::format("cpus: I/O threads cannot run on CPUs {} to {}: {}", *least, *most,
                            std::generic_category().message(error)),
                error);
}

class ThreadBackend final : public Backend {
 public:
  explicit ThreadBackend(std::uint32_t depth) : depth_(depth) {}

  ~ThreadBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Status start(std::uint32_t count, const std::vector<int>& cpus) {
    const SignalsBlocked signals_blocked;
    workers_.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      try {
        workers_.emplace_back([this] { work(); });
      } catch (const std::system_error& error) {
        return Status(Code::kResourceExhausted,
                      fmt::format("starting I/O thread {} of {}: {}", i + 1, count, error.code().message()),
                      error.code().value());
      }
      pthread_setname_np(workers_.back().native_handle(), "sluice-io");
      SLUICE_RETURN_IF_ERROR(bind(workers_.back(), cpus));
    }
    return Status();
  }

  std::string_view name() const override { return "threads"; }
  BackendLimits limits() const override { return {.depth = depth_}; }

  Request* submit(Request* first) override {
    std::uint32_t taken = 0;
    {
      const std::lock_guard lock(mutex_);
      while (first != nullptr && held_ < depth_) {
        Request* next = first->next;
        todo_.push(*first);
        ++held_;
        ++taken;
        first = next;
      }
    }
    for (; taken > 0; --taken) work_.notify_one();
    return first;
  }

  Request* reap() override {
    const std::lock_guard lock(mutex_);
    held_ -= done_.count;
    return done_.take();
  }

  void wait(std::int64_t deadline_ns, std::uint32_t events) override {
    std::unique_lock lock(mutex_);
    awaited_ = awaited(events, held_);
    const auto ready = [this] { return woken_ || done_.count >= awaited_; };
    if (deadline_ns == kNoDeadline) {
      finished_.wait(lock, ready);
    } else {
      finished_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns)),
                           ready);
    }
    woken_ = false;
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    finished_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stopping_ || !todo_.empty(); });
      if (todo_.empty()) return;
      Request& request = todo_.pop();
      lock.unlock();
      request.result = perform(request);
      lock.lock();
      done_.push(request);
      if (done_.count >= awaited_) finished_.notify_one();
    }
  }

  const std::uint32_t depth_;
  std::mutex mutex_;
  std::condition_variable work_;      // todo_ or stopping_ changed
  std::condition_variable finished_;  // done_ has reached awaited_, or woken_ changed
  RequestList todo_;
  RequestList done_;
  std::uint32_t held_ = 0;     // taken and not reaped
  std::uint32_t awaited_ = 1;  // finished ones that end the wait in progress
  bool woken_ = false;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace

Result<std::unique_ptr<Backend>> open_thread_backend(const ThreadBackendOptions& options) {
  auto backend = std::make_unique<ThreadBackend>(options.depth);
  SLUICE_RETURN_IF_ERROR(backend->start(std::min(options.threads, options.depth), options.cpus));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace sluice::io
