#include <sys/syscall.h>

#include <optional>
#include <thread>

#include "queue_fixture.hpp"
#include "support/refusal.hpp"

namespace sluice::io {
namespace {

using sim::Fault;

/// Direct files on grids of 512 bytes to 64 KiB, whatever the file system here has: the kernel is made to
/// refuse what is off the grid while the file is opened and finds its grid, the backend refuses it afterwards.
class QueueGridTest : public QueueTest {
 protected:
  static constexpr std::uint32_t kGrids[] = {512, 4096, 16384, 65536};
  static constexpr std::uint64_t kBlocks = 40;

  /// A file of kBlocks blocks that has found `grid` for itself; nothing where it cannot be had here.
  std::optional<File> on_grid(std::uint32_t grid) {
    const std::string name = "grid-" + std::to_string(grid);
    {
      File target = file(name, Caching::kDirect);
      if (!target.preallocate(kBlocks * grid).ok()) return std::nullopt;
    }
    std::optional<File> found;
    // A filter holds for its thread alone.
    std::thread([&] {
      const std::uint32_t off = grid - 1;
      for (const long call : {SYS_pread64, SYS_pwrite64}) {
        if (!sim::refuse({{.call = call, .error = EINVAL, .argument = 2, .any_of_bits = off},
                          {.call = call, .error = EINVAL, .argument = 3, .any_of_bits = off}}))
          return;
      }
      found = file(name, Caching::kDirect);
    }).join();
    if (!found || !found->direct() || found->grid().offset_bytes != grid) return std::nullopt;
    backend_->enforce_grid(found->fd(), found->grid());
    return found;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, QueueGridTest, kEveryBackend, kind_name);

TEST_P(QueueGridTest, PiecesAreCutOnEveryGridWhateverThePieceSize) {
  int grids = 0;
  for (const std::uint32_t grid : kGrids) {
    const std::optional<File> target = on_grid(grid);
    if (!target) continue;
    ++grids;
    Buffer source(kBlocks * grid), read(kBlocks * grid);
    source.fill(seed_ + grid);
    for (const std::uint32_t piece_bytes : {1u, grid - 1, grid, grid + 1, 3 * grid + 7, 1u << 30}) {
      Queue queue(*backend_, {.drives = {{.piece_bytes = piece_bytes, .depth = 8}}});
      ASSERT_TRUE(run(queue, Op::kWrite, *target, source.data(), source.size(), 0).ok()) << grid;
      ASSERT_TRUE(run(queue, Op::kFlush, *target, nullptr, 0, 0).ok());
      ASSERT_TRUE(run(queue, Op::kRead, *target, read.data(), read.size(), 0).ok());
      EXPECT_TRUE(read == source);
      const std::uint64_t piece = std::max(piece_bytes / grid, 1u) * std::uint64_t{grid};
      EXPECT_EQ(queue.counters().reads, (source.size() + piece - 1) / piece);
    }
  }
  if (grids == 0) GTEST_SKIP() << "no O_DIRECT in the temporary directory, or no seccomp";
  EXPECT_GE(grids, 3);  // 512 is not on every drive
}

TEST_P(QueueGridTest, WhatIsOffAnyGridIsRefusedBeforeItIsSent) {
  for (const std::uint32_t grid : kGrids) {
    const std::optional<File> target = on_grid(grid);
    if (!target) continue;
    Buffer memory(4 * grid);
    Queue queue(*backend_, {});
    const std::size_t before = backend_->log().size();
    const auto refused = [&](std::uint64_t bytes, std::uint64_t offset, std::uint64_t shift) {
      return run(queue, Op::kRead, *target, memory.data() + shift, bytes, offset).code() ==
             Code::kInvalidArgument;
    };
    EXPECT_TRUE(refused(grid / 2, 0, 0));
    EXPECT_TRUE(refused(grid + 1, 0, 0));
    EXPECT_TRUE(refused(grid, grid / 2, 0));
    EXPECT_TRUE(refused(grid, 1, 0));
    EXPECT_TRUE(refused(grid, 0, 1));
    EXPECT_EQ(backend_->log().size(), before);
    EXPECT_FALSE(refused(2 * grid, grid, grid));
  }
}

/// Random transfers on a grid with requests cut short anywhere: what is sent again starts on the grid.
TEST_P(QueueGridTest, ShortTransfersAreResumedOnEveryGrid) {
  if (GetParam() != Kind::kSimulation) GTEST_SKIP() << "a request of an odd length would be refused below";
  std::mt19937_64 random(seed_);
  const auto below = [&](std::uint64_t end) { return random() % end; };
  for (const std::uint32_t grid : kGrids) {
    const std::optional<File> target = on_grid(grid);
    if (!target) continue;
    backend_->faults().clear();
    for (const Op op : {Op::kRead, Op::kWrite}) {
      backend_->faults().add({.op = op, .error = Fault::kShort, .probability = 0.4});
      backend_->faults().add({.op = op, .error = EAGAIN, .probability = 0.1});
    }
    Buffer model(kBlocks * grid), memory(kBlocks * grid);
    Queue queue(*backend_, {.drives = {{.piece_bytes = 3 * grid, .depth = 5}}});
    model.fill(seed_);
    ASSERT_TRUE(run(queue, Op::kWrite, *target, model.data(), model.size(), 0).ok());
    for (int round = 0; round < 40; ++round) {
      const std::uint64_t begin = below(kBlocks), blocks = below(kBlocks - begin) + 1;
      std::byte* part = memory.data() + begin * grid;
      std::byte* truth = model.data() + begin * grid;
      if (below(2) == 0) {
        ASSERT_TRUE(run(queue, Op::kRead, *target, part, blocks * grid, begin * grid).ok());
        ASSERT_EQ(std::memcmp(part, truth, blocks * grid), 0);
      } else {
        for (std::uint64_t i = 0; i < blocks * grid; i += 64) truth[i] = static_cast<std::byte>(random());
        ASSERT_TRUE(run(queue, Op::kWrite, *target, truth, blocks * grid, begin * grid).ok());
      }
    }
    backend_->faults().clear();
    ASSERT_TRUE(run(queue, Op::kRead, *target, memory.data(), memory.size(), 0).ok());
    EXPECT_TRUE(memory == model);
    EXPECT_GT(queue.counters().short_transfers, 20u);
  }
}

TEST_P(QueueGridTest, ADirectRequestThatIsRefusedAfterAllNamesTheFileItsGridAndTheRemedy) {
  const std::optional<File> target = on_grid(4096);
  if (!target) GTEST_SKIP() << "no O_DIRECT in the temporary directory, or no seccomp";
  Buffer memory(8 * 4096);
  for (const Op op : {Op::kRead, Op::kWrite}) {
    backend_->faults().add({.op = op, .error = EINVAL, .count = 1});
    Queue queue(*backend_, {});
    const Status status = run(queue, op, *target, memory.data(), memory.size(), 0);
    EXPECT_EQ(status.code(), Code::kIoError);
    EXPECT_EQ(status.native(), EINVAL);
    for (const std::string& said :
         {target->path(), std::string("grid of 4096 bytes"), std::string("O_DIRECT")})
      EXPECT_NE(status.message().find(said), std::string::npos) << status.message();
    EXPECT_TRUE(target->direct());
    EXPECT_TRUE(
        run(queue, op, *target, memory.data(), memory.size(), 0).ok());  // as it may have been the one
  }
}

}  // namespace
}  // namespace sluice::io
