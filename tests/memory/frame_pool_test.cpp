#include "memory/frame_pool.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

namespace sluice::memory {
namespace {

constexpr std::uint64_t kFrameBytes = 8192;

struct Block {
  explicit Block(std::size_t size)
      : data(static_cast<std::byte*>(std::aligned_alloc(4096, size)), &std::free), bytes(size) {}
  std::span<std::byte> span() const { return {data.get(), bytes}; }

  std::unique_ptr<std::byte, decltype(&std::free)> data;
  std::size_t bytes;
};

TEST(FramePool, GivesEachFrameOnceThenNone) {
  const Block block(5 * kFrameBytes);
  FramePool pool(block.span(), kFrameBytes, 5);
  std::set<std::byte*> frames;
  for (int i = 0; i < 5; ++i) {
    std::byte* frame = pool.try_acquire();
    ASSERT_NE(frame, nullptr);
    EXPECT_EQ((frame - block.data.get()) % static_cast<std::ptrdiff_t>(kFrameBytes), 0);
    std::memset(frame, i, kFrameBytes);
    frames.insert(frame);
  }
  EXPECT_EQ(frames.size(), 5u);
  EXPECT_EQ(pool.free_frames(), 0u);
  EXPECT_EQ(pool.try_acquire(), nullptr);
  for (std::byte* frame : frames) pool.release(frame);
  EXPECT_EQ(pool.free_frames(), 5u);
}

TEST(FramePool, FirstFrameIsTheFirstOfTheBlockAndTheLastReleasedComesBackFirst) {
  const Block block(3 * kFrameBytes);
  FramePool pool(block.span(), kFrameBytes, 3);
  std::byte* first = pool.try_acquire();
  std::byte* second = pool.try_acquire();
  EXPECT_EQ(first, block.data.get());
  pool.release(second);
  pool.release(first);
  EXPECT_EQ(pool.try_acquire(), first);
}

TEST(FramePool, MemoryBeyondTheFramesIsLeftAlone) {
  const Block block(4 * kFrameBytes);
  FramePool pool(block.span(), kFrameBytes, 3);
  std::memset(block.data.get() + 3 * kFrameBytes, 1, kFrameBytes);
  EXPECT_EQ(pool.frames(), 3u);
  EXPECT_EQ(pool.frame_bytes(), kFrameBytes);
}

TEST(FramePool, OfNothingHasNothing) {
  FramePool pool({}, 4096, 0);
  EXPECT_EQ(pool.try_acquire(), nullptr);
}

TEST(FramePool, DroppedPoolLeavesItsMemoryUsable) {
  const Block block(2 * kFrameBytes);
  { FramePool pool(block.span(), kFrameBytes, 2); }
  std::memset(block.data.get(), 1, block.bytes);
}

TEST(FramePoolDeathTest, SecondReleaseEndsTheProcessWithTheFrame) {
  const Block block(2 * kFrameBytes);
  FramePool pool(block.span(), kFrameBytes, 2);
  std::byte* frame = pool.try_acquire();
  pool.release(frame);
  EXPECT_DEATH(pool.release(frame), "frame 0 of 2 is released twice");
}

TEST(FramePoolDeathTest, ForeignPointerEndsTheProcess) {
  const Block block(2 * kFrameBytes);
  FramePool pool(block.span(), kFrameBytes, 2);
  std::byte* frame = pool.try_acquire();
  EXPECT_DEATH(pool.release(frame + 1), "is no frame of 2 x 8192 bytes");
  EXPECT_DEATH(pool.release(block.data.get() + 2 * kFrameBytes), "is no frame of");
  EXPECT_DEATH(pool.release(nullptr), "is no frame of");
  EXPECT_DEATH(pool.release(block.data.get() - kFrameBytes), "is no frame of");
}

TEST(FramePoolDeathTest, SizesThatDoNotFitEndTheProcess) {
  const Block block(2 * kFrameBytes);
  EXPECT_DEATH(FramePool(block.span(), kFrameBytes, 3), "3 frames of 8192 bytes in 16384 bytes");
  EXPECT_DEATH(FramePool(block.span(), 4097, 1), "1 frames of 4097 bytes");
  EXPECT_DEATH(FramePool(block.span(), 0, 1), "1 frames of 0 bytes");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(FramePoolDeathTest, TouchingAReleasedFrameIsCaught) {
  const Block block(2 * kFrameBytes);
  FramePool pool(block.span(), kFrameBytes, 2);
  volatile std::byte* frame = pool.try_acquire();
  frame[0] = std::byte{1};
  pool.release(const_cast<std::byte*>(frame));
  EXPECT_DEATH(frame[0] = std::byte{2}, "use-after-poison");
}
#endif

}  // namespace
}  // namespace sluice::memory
