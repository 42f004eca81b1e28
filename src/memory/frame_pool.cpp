#include "memory/frame_pool.hpp"

#include <fmt/format.h>
#include <sanitizer/asan_interface.h>  // its macros are empty without AddressSanitizer

#include "memory/check.hpp"

namespace sluice::memory {

FramePool::FramePool(std::span<std::byte> memory, std::uint64_t frame_bytes, std::uint32_t frames)
    : base_(memory.data()), frame_bytes_(frame_bytes), free_(frames), acquired_(frames) {
  if (frame_bytes == 0 || frame_bytes % 4096 != 0 || memory.size() / frame_bytes < frames)
    fail_check(fmt::format("FramePool: {} frames of {} bytes in {} bytes of memory", frames, frame_bytes,
                           memory.size()));
  for (std::uint32_t i = 0; i < frames; ++i) free_[i] = frames - 1 - i;
  ASAN_POISON_MEMORY_REGION(base_, frames * frame_bytes);
}

FramePool::~FramePool() { ASAN_UNPOISON_MEMORY_REGION(base_, frames() * frame_bytes_); }

std::byte* FramePool::try_acquire() {
  if (free_.empty()) return nullptr;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  acquired_[index] = true;
  std::byte* frame = base_ + index * frame_bytes_;
  ASAN_UNPOISON_MEMORY_REGION(frame, frame_bytes_);
  return frame;
}

void FramePool::release(std::byte* frame) {
  // A pointer below the block wraps around to an offset far above it.
  const std::uint64_t offset =
      reinterpret_cast<std::uintptr_t>(frame) - reinterpret_cast<std::uintptr_t>(base_);
  const std::uint64_t index = offset / frame_bytes_;
  if (index >= frames() || offset % frame_bytes_ != 0)
    fail_check(fmt::format("FramePool: released {} is no frame of {} x {} bytes at {}", fmt::ptr(frame),
                           frames(), frame_bytes_, fmt::ptr(base_)));
  if (!acquired_[index])
    fail_check(fmt::format("FramePool: frame {} of {} is released twice", index, frames()));
  acquired_[index] = false;
  free_.push_back(static_cast<std::uint32_t>(index));
  ASAN_POISON_MEMORY_REGION(frame, frame_bytes_);
}

}  // namespace sluice::memory
