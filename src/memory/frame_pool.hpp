#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::memory {

/// Equal frames cut from one block of memory. A released frame is poisoned under AddressSanitizer until it
/// is acquired.
/// Invariant: free_frames() + acquired frames = frames(); frame i is at memory + i * frame_bytes.
/// Threads: one at a time.
/// Lifetime: `memory` outlives the pool; dropping the pool unpoisons all of it.
class FramePool {
 public:
  /// Requires: frame_bytes a multiple of 4096 and not 0, memory of at least frames * frame_bytes; else the
  /// process ends.
  FramePool(std::span<std::byte> memory, std::uint64_t frame_bytes, std::uint32_t frames);
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  /// Returns: a frame of unspecified content, the one released last first; null when none is free.
  std::byte* try_acquire();

  /// Requires: a frame that try_acquire() gave and that was not released since; else the process ends.
  void release(std::byte* frame);

  std::uint32_t free_frames() const { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t frames() const { return static_cast<std::uint32_t>(acquired_.size()); }
  std::uint64_t frame_bytes() const { return frame_bytes_; }

 private:
  std::byte* base_;
  std::uint64_t frame_bytes_;
  std::vector<std::uint32_t> free_;  // frame numbers, the next to give last
  std::vector<bool> acquired_;
};

}  // namespace sluice::memory
