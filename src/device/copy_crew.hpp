#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "sluice/device.hpp"
#include "sluice/status.hpp"

namespace sluice::device {

/// A first-in, first-out list of copies, chained through DeviceCopy::next.
/// Threads: one at a time.
class CopyList {
 public:
  bool empty() const { return head_ == nullptr; }
  void push(DeviceCopy& copy);
  /// Returns: the oldest, or null.
  DeviceCopy* pop();

 private:
  DeviceCopy* head_ = nullptr;
  DeviceCopy* tail_ = nullptr;
};

/// Threads that copy within host memory. A large copy is cut into slices of 1 MiB, so that all threads share
/// it.
/// Threads: submit(), poll() from one at a time.
/// Lifetime: the destructor ends after every submitted copy is done.
class CopyCrew {
 public:
  /// `on_finished` is called by the crew's threads after poll() can return a copy; may be empty.
  CopyCrew(std::uint32_t threads, std::function<void()> on_finished);
  ~CopyCrew();
  CopyCrew(const CopyCrew&) = delete;
  CopyCrew& operator=(const CopyCrew&) = delete;

  /// Starts the threads.
  /// Errors: kResourceExhausted; those that run end with the crew.
  Status start();

  /// Blocks: never.
  void submit(DeviceCopy& copy);

  /// Returns: a finished copy, or null.
  DeviceCopy* poll();

 private:
  // A copy that threads work on. Free when copy is null.
  struct Active {
    DeviceCopy* copy = nullptr;
    std::uint64_t next_offset = 0;       // of the first byte that no thread has taken
    std::uint32_t slices_in_flight = 0;  // taken and not yet copied
    bool all_taken = false;
  };

  void work();
  Active* next_active();

  const std::uint32_t threads_wanted_;
  const std::function<void()> on_finished_;

  std::mutex mutex_;
  std::condition_variable work_or_end_;
  // Under mutex_.
  CopyList submitted_;
  CopyList finished_;
  std::vector<Active> active_;  // one a thread, and the one that slices are taken from
  Active* taken_from_ = nullptr;
  bool ending_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace sluice::device
