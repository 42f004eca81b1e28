#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>

#include "queue_fixture.hpp"
#include "support/refusal.hpp"

namespace sluice::io {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// What a buffered file leaves in the page cache.
class QueueCacheTest : public QueueTest {
 protected:
  /// Bytes of the file in the page cache.
  static std::uint64_t resident(const File& target) {
    const std::uint64_t bytes = *target.size();
    void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, target.fd(), 0);
    if (mapped == MAP_FAILED) return ~std::uint64_t{0};
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> there(bytes / page + 1);
    EXPECT_EQ(::mincore(mapped, bytes, there.data()), 0);
    ::munmap(mapped, bytes);
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < (bytes + page - 1) / page; ++i) count += there[i] & 1;
    return count * page;
  }

  /// In blocks of the memory's size, all of which are written from it; a read has a block of its own for each.
  void move(Queue& queue, Op op, const File& target, Buffer& memory, std::uint64_t bytes) {
    std::deque<Counted> transfers(bytes / memory.size());
    Buffer blocks(op == Op::kRead ? bytes : memory.size());
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      std::byte* const block = op == Op::kRead ? blocks.data() + i * memory.size() : memory.data();
      describe(transfers[i], op, target, block, memory.size(), i * memory.size());
      queue.submit(transfers[i]);
    }
    queue.drain();
    for (const Counted& transfer : transfers)
      EXPECT_TRUE(transfer.status.ok()) << transfer.status.to_string();
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, QueueCacheTest, kEveryBackend, kind_name);

TEST_P(QueueCacheTest, AFileThatFellBackLeavesThePageCacheBehindItsTransfers) {
  if (GetParam() == Kind::kSimulation) GTEST_SKIP() << "the simulation has no page cache";
  constexpr std::uint64_t kBytes = 64 * kMiB;
  std::optional<File> target_or;
  std::thread([&] {  // the filter is this thread's alone
    if (sim::refuse({{.call = SYS_fcntl, .error = EINVAL, .argument = 2, .any_of_bits = O_DIRECT}}))
      target_or = file("data", Caching::kDirect);
  })
      .join();
  if (!target_or) GTEST_SKIP() << "no seccomp here";
  const File& target = *target_or;
  ASSERT_FALSE(target.direct());
  ASSERT_FALSE(target.fallback_reason().empty());
  Buffer memory(4 * kMiB);
  memory.fill(seed_);
  {
    Queue queue(*backend_, {});
    move(queue, Op::kWrite, target, memory, kBytes);
    ASSERT_TRUE(run(queue, Op::kFlush, target, nullptr, 0, 0).ok());
  }
  EXPECT_LE(resident(target), 4 * kMiB);
  {
    Queue queue(*backend_, {});
    move(queue, Op::kRead, target, memory, kBytes);
  }
  EXPECT_LE(resident(target), 4 * kMiB);
}

TEST_P(QueueCacheTest, EveryByteOfABufferedFileIsDroppedAndNoneOfADirectOne) {
  Buffer memory(kMiB);
  for (const Caching caching : {Caching::kBuffered, Caching::kDirect}) {
    File target = file(caching == Caching::kBuffered ? "buffered" : "direct", caching);
    if (caching == Caching::kDirect && !target.direct()) continue;
    ASSERT_TRUE(target.preallocate(32 * kMiB).ok());
    const std::size_t before = backend_->drops().size();
    {
      Queue queue(*backend_, {.drives = {{.piece_bytes = 1 << 18}}});
      move(queue, Op::kRead, target, memory, 32 * kMiB);
    }
    std::vector<bool> dropped(32 * kMiB / 4096);
    for (std::size_t i = before; i < backend_->drops().size(); ++i) {
      const auto& drop = backend_->drops()[i];
      const std::uint64_t end = drop.bytes == DropBehind::kToTheEnd ? 32 * kMiB : drop.offset + drop.bytes;
      for (std::uint64_t at = drop.offset / 4096; at < end / 4096; ++at) dropped[at] = true;
    }
    const auto count = static_cast<std::size_t>(std::count(dropped.begin(), dropped.end(), true));
    EXPECT_EQ(count, target.direct() ? 0 : dropped.size());
  }
}

TEST_P(QueueCacheTest, AFlushDropsTheWholeFileOnce) {
  const File target = file("data");
  Buffer memory(kMiB);
  Queue queue(*backend_, {});
  move(queue, Op::kWrite, target, memory, 4 * kMiB);
  ASSERT_TRUE(run(queue, Op::kFlush, target, nullptr, 0, 0).ok());
  ASSERT_FALSE(backend_->drops().empty());
  EXPECT_EQ(backend_->drops().back().offset, 0u);
  EXPECT_EQ(backend_->drops().back().bytes, DropBehind::kToTheEnd);
}

TEST_P(QueueCacheTest, ADropThatFailsHarmsNothing) {
  const File target = file("data");
  Buffer memory(kMiB);
  backend_->faults().add({.op = Op::kDropCache, .error = EIO});
  {
    Queue queue(*backend_, {});
    move(queue, Op::kWrite, target, memory, 16 * kMiB);
    ASSERT_TRUE(run(queue, Op::kFlush, target, nullptr, 0, 0).ok());
    move(queue, Op::kRead, target, memory, 16 * kMiB);
    EXPECT_EQ(queue.counters().errors, 0u);
    EXPECT_EQ(queue.counters().retries, 0u);
  }
  EXPECT_FALSE(backend_->drops().empty());
}

TEST_P(QueueCacheTest, DropsTakeNoPlaceOfTheDepthAndAFullBackendStillTakesThem) {
  const File target = file("data");
  Buffer memory(1 << 16);
  const std::uint32_t depth = backend_->limits().depth;
  {
    Queue queue(*backend_, {.drives = {{.piece_bytes = 4096, .depth = depth}}});
    move(queue, Op::kWrite, target, memory, 64 * memory.size());
    move(queue, Op::kRead, target, memory, 64 * memory.size());
    EXPECT_EQ(queue.counters().max_in_flight, depth);
    EXPECT_FALSE(backend_->drops().empty());
    EXPECT_EQ(queue.counters().reads, 64 * memory.size() / 4096);
  }
  EXPECT_EQ(backend_->max_in_flight(), depth);
  EXPECT_EQ(backend_->in_flight(), 0u);
}

}  // namespace
}  // namespace sluice::io
