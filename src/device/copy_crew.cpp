#include "device/copy_crew.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "memory/thread.hpp"

namespace sluice::device {
namespace {

constexpr std::uint64_t kSliceBytes = 1 << 20;

}  // namespace

void CopyList::push(DeviceCopy& copy) {
  copy.next = nullptr;
  (head_ == nullptr ? head_ : tail_->next) = &copy;
  tail_ = &copy;
}

DeviceCopy* CopyList::pop() {
  DeviceCopy* copy = head_;
  if (copy != nullptr) head_ = std::exchange(copy->next, nullptr);
  return copy;
}

CopyCrew::CopyCrew(std::uint32_t threads, std::function<void()> on_finished)
    : threads_wanted_(threads), on_finished_(std::move(on_finished)), active_(threads + 1) {}

CopyCrew::~CopyCrew() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_or_end_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status CopyCrew::start() {
  while (threads_.size() < threads_wanted_) {
    Result<std::thread> thread = memory::start_thread("sluice-copy", [this] { work(); });
    if (!thread.ok()) return thread.status();
    threads_.push_back(std::move(thread).value());
  }
  return {};
}

void CopyCrew::submit(DeviceCopy& copy) {
  const bool shared = copy.bytes > kSliceBytes;
  {
    const std::lock_guard lock(mutex_);
    submitted_.push(copy);
  }
  // The copy may be done and gone from here on.
  if (shared)
    work_or_end_.notify_all();
  else
    work_or_end_.notify_one();
}

DeviceCopy* CopyCrew::poll() {
  const std::lock_guard lock(mutex_);
  return finished_.pop();
}

// Returns: a copy with bytes to take, or null when none is left. Requires mutex_.
CopyCrew::Active* CopyCrew::next_active() {
  if (taken_from_ != nullptr && !taken_from_->all_taken) return taken_from_;
  taken_from_ = nullptr;
  DeviceCopy* copy = submitted_.pop();
  if (copy == nullptr) return nullptr;
  // Of threads + 1 entries at most one a thread is in use here.
  taken_from_ =
      &*std::find_if(active_.begin(), active_.end(), [](const Active& a) { return a.copy == nullptr; });
  *taken_from_ = {.copy = copy};
  return taken_from_;
}

void CopyCrew::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    Active* active = next_active();
    if (active == nullptr) {
      if (ending_) return;
      work_or_end_.wait(lock);
      continue;
    }
    const DeviceCopy& copy = *active->copy;
    const std::uint64_t offset = active->next_offset;
    const std::uint64_t bytes = std::min(kSliceBytes, copy.bytes - offset);
    active->next_offset = offset + bytes;
    active->all_taken = active->next_offset == copy.bytes;
    ++active->slices_in_flight;
    lock.unlock();
    if (bytes != 0)
      std::memcpy(static_cast<std::byte*>(copy.target) + offset,
                  static_cast<const std::byte*>(copy.source) + offset, bytes);
    lock.lock();
    if (--active->slices_in_flight != 0 || !active->all_taken) continue;
    active->copy->status = Status();
    finished_.push(*std::exchange(active->copy, nullptr));
    if (!on_finished_) continue;
    lock.unlock();
    on_finished_();
    lock.lock();
  }
}

}  // namespace sluice::device
