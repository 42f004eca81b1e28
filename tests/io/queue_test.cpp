#include <gmock/gmock.h>

#include <atomic>
#include <deque>
#include <thread>

#include "queue_fixture.hpp"

namespace sluice::io {
namespace {

INSTANTIATE_TEST_SUITE_P(Backends, QueueTest, kEveryBackend, kind_name);

constexpr std::uint64_t kPiece = 4096;

TEST_P(QueueTest, ReadsWhatWasWrittenWhateverItsLength) {
  const File target = file("data");
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 8}}});
  for (const std::uint64_t bytes : {std::uint64_t{1}, kPiece - 1, kPiece, kPiece + 1, 40 * kPiece + 3}) {
    Buffer source(bytes), read(bytes);
    source.fill(bytes);
    EXPECT_TRUE(run(queue, Op::kWrite, target, source.data(), bytes, 777).ok());
    EXPECT_TRUE(run(queue, Op::kRead, target, read.data(), bytes, 777).ok());
    EXPECT_TRUE(read == source) << bytes;
  }
}

TEST_P(QueueTest, NoRequestExceedsThePieceSize) {
  const File target = file("data");
  Queue queue(*backend_, {.drives = {{.piece_bytes = 1000, .depth = 8}}});
  Buffer memory(25'500);
  ASSERT_TRUE(run(queue, Op::kWrite, target, memory.data(), memory.size(), 0).ok());
  EXPECT_EQ(backend_->log().size(), 26u);
  for (const auto& entry : backend_->log()) EXPECT_LE(entry.bytes, 1000u);
}

TEST_P(QueueTest, DirectFilesAreReadAndWrittenOnTheirGrid) {
  File target = file("data", Caching::kDirect);
  const std::uint64_t grid = std::max(target.grid().offset_bytes, 512u);
  ASSERT_TRUE(target.preallocate(64 * grid).ok());
  Queue queue(*backend_,
              {.drives = {{.piece_bytes = static_cast<std::uint32_t>(3 * grid + 100), .depth = 8}}});
  Buffer source(64 * grid), read(64 * grid);
  source.fill(1);
  ASSERT_TRUE(run(queue, Op::kWrite, target, source.data(), source.size(), 0).ok());
  ASSERT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), 0).ok());
  EXPECT_TRUE(read == source);
  if (target.direct()) {
    for (const auto& entry : backend_->log())
      EXPECT_EQ((entry.offset | entry.bytes) % target.grid().offset_bytes, 0u);
  }
}

TEST_P(QueueTest, ReadsAndWritesBeyondFourGiB) {
  const File target = file("sparse");
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece}}});
  Buffer source(3 * kPiece), read(3 * kPiece);
  source.fill(2);
  const std::uint64_t offset = (std::uint64_t{1} << 32) * 3 - kPiece;
  ASSERT_TRUE(run(queue, Op::kWrite, target, source.data(), source.size(), offset).ok());
  ASSERT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), offset).ok());
  EXPECT_TRUE(read == source);
  EXPECT_EQ(*target.size(), offset + source.size());
}

TEST_P(QueueTest, ZeroBytesCompleteAtTheNextPollWithoutARequest) {
  const File target = file("data");
  Queue queue(*backend_, {});
  Counted transfer;
  describe(transfer, Op::kRead, target, nullptr, 0, 12);
  queue.submit(transfer);
  EXPECT_EQ(transfer.completions, 0);
  queue.wait();  // returns at once: poll() has something to do
  EXPECT_EQ(queue.poll(), 1u);
  EXPECT_EQ(transfer.completions, 1);
  EXPECT_TRUE(transfer.status.ok());
  EXPECT_TRUE(backend_->log().empty());
}

TEST_P(QueueTest, FlushIsOneRequestAndCounted) {
  const File target = file("data");
  Queue queue(*backend_, {});
  std::byte byte{7};
  ASSERT_TRUE(run(queue, Op::kWrite, target, &byte, 1, 0).ok());
  ASSERT_TRUE(run(queue, Op::kFlush, target, nullptr, 0, 0).ok());
  EXPECT_EQ(queue.counters().flushes, 1u);
  EXPECT_EQ(queue.counters().writes, 1u);
}

TEST_P(QueueTest, CountsRequestsBytesAndTransfers) {
  const File target = file("data");
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 4}}});
  Buffer memory(10 * kPiece);
  ASSERT_TRUE(run(queue, Op::kWrite, target, memory.data(), memory.size(), 0).ok());
  ASSERT_TRUE(run(queue, Op::kRead, target, memory.data(), memory.size() / 2, 0).ok());
  const QueueCounters& counted = queue.counters();
  EXPECT_EQ(counted.writes, 10u);
  EXPECT_EQ(counted.reads, 5u);
  EXPECT_EQ(counted.bytes_written, 10 * kPiece);
  EXPECT_EQ(counted.bytes_read, 5 * kPiece);
  EXPECT_EQ(counted.transfers, 2u);
  EXPECT_EQ(counted.retries, 0u);
  EXPECT_EQ(counted.short_transfers, 0u);
  EXPECT_EQ(counted.errors, 0u);
  EXPECT_EQ(counted.max_in_flight, 4u);
}

TEST_P(QueueTest, RefusesWhatIsOffTheGridOrWithoutAPlace) {
  File target = file("data", Caching::kDirect);
  Queue queue(*backend_, {});
  Buffer memory(8192);
  EXPECT_EQ(run(queue, Op::kRead, target, nullptr, 4096, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(run(queue, Op::kRead, target, memory.data(), 4096, ~std::uint64_t{4095}).code(),
            Code::kInvalidArgument);
  if (target.direct()) {
    EXPECT_EQ(run(queue, Op::kRead, target, memory.data(), 4096, 100).code(), Code::kInvalidArgument);
    EXPECT_EQ(run(queue, Op::kRead, target, memory.data(), 100, 0).code(), Code::kInvalidArgument);
    EXPECT_EQ(run(queue, Op::kRead, target, memory.data() + 1, 4096, 0).code(), Code::kInvalidArgument);
  }
  Counted homeless;
  homeless.bytes = 1;
  homeless.buffer = memory.data();
  queue.submit(homeless);
  Counted elsewhere;
  describe(elsewhere, Op::kRead, target, memory.data(), 4096, 0);
  elsewhere.drive = 1;
  queue.submit(elsewhere);
  EXPECT_EQ(queue.poll(), 2u);
  EXPECT_EQ(homeless.status.code(), Code::kInvalidArgument);
  EXPECT_EQ(elsewhere.status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(backend_->log().empty());
}

TEST_P(QueueTest, OnDoneMaySubmitTheNextTransfer) {
  struct Chain : Transfer {
    Queue* queue = nullptr;
    int left = 50;
  };
  const File target = file("data");
  Queue queue(*backend_, {});
  Buffer memory(512);
  Chain chain;
  chain.op = Op::kWrite;
  chain.file = &target;
  chain.buffer = memory.data();
  chain.bytes = memory.size();
  chain.queue = &queue;
  chain.on_done = [](Transfer& transfer) {
    Chain& self = static_cast<Chain&>(transfer);
    self.offset += self.bytes;
    if (--self.left > 0) self.queue->submit(self);
  };
  queue.submit(chain);
  queue.drain();
  EXPECT_EQ(chain.left, 0);
  EXPECT_EQ(*target.size(), 50u * 512);
}

TEST_P(QueueTest, DestructionCompletesHundredsInFlightExactlyOnce) {
  const File target = file("data");
  std::deque<Counted> transfers(300);
  {
    std::deque<Buffer> memory;
    Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 16}}});
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      memory.emplace_back(3 * kPiece);
      describe(transfers[i], Op::kWrite, target, memory.back().data(), 3 * kPiece, i * 3 * kPiece);
      queue.submit(transfers[i]);
    }
    queue.poll();
  }
  std::size_t aborted = 0;
  for (const Counted& transfer : transfers) {
    EXPECT_EQ(transfer.completions, 1);
    EXPECT_TRUE(transfer.status.ok() || transfer.status.code() == Code::kAborted)
        << transfer.status.to_string();
    aborted += transfer.status.ok() ? 0 : 1;
  }
  EXPECT_GT(aborted, 200u);
  EXPECT_EQ(backend_->in_flight(), 0u);
}

TEST_P(QueueTest, CancelGivesUpOnlyWhatHasNotStarted) {
  const File target = file("data");
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 2}}});
  Buffer memory(10 * kPiece), other(kPiece);
  Counted partly, whole, waiting;
  describe(partly, Op::kWrite, target, memory.data(), memory.size(), 0);
  describe(whole, Op::kWrite, target, other.data(), kPiece, 20 * kPiece);
  describe(waiting, Op::kWrite, target, other.data(), kPiece, 30 * kPiece);
  queue.submit(partly);
  queue.submit(waiting);
  queue.poll();
  queue.cancel(partly);
  queue.cancel(waiting);
  queue.drain();
  queue.submit(whole);
  queue.poll();
  queue.cancel(whole);  // all of it has started
  queue.drain();
  EXPECT_EQ(partly.status.code(), Code::kAborted);
  EXPECT_EQ(partly.done_bytes, 2 * kPiece);
  EXPECT_EQ(waiting.status.code(), Code::kAborted);
  EXPECT_EQ(waiting.done_bytes, 0u);
  EXPECT_TRUE(whole.status.ok());
  for (const Counted* transfer : {&partly, &whole, &waiting}) EXPECT_EQ(transfer->completions, 1);
}

TEST_P(QueueTest, WakeFromAnotherThreadEndsTheWait) {
  Queue queue(*backend_, {});
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> posted = false;
    std::thread trainer([&] {
      posted = true;
      queue.wake();
    });
    while (!posted) queue.wait();  // a lost wake hangs here
    trainer.join();
  }
}

TEST_P(QueueTest, AWakeBeforeTheWaitIsKept) {
  Queue queue(*backend_, {});
  for (int round = 0; round < 10; ++round) {
    queue.wait(backend_->now_ns() + 1);  // goes to sleep once, so that poll() meets the wake
    queue.wake();
    queue.wake();
    queue.poll();
    queue.wait();
  }
}

TEST_P(QueueTest, WaitEndsAtItsDeadline) {
  Queue queue(*backend_, {});
  const std::int64_t deadline_ns = backend_->now_ns() + 3'000'000;
  while (backend_->now_ns() < deadline_ns) queue.wait(deadline_ns);
  queue.wait(deadline_ns);  // in the past
}

TEST_P(QueueTest, MayBeUsedByAnotherThreadThanItsMaker) {
  const File target = file("data");
  Buffer source(16 * kPiece), read(16 * kPiece);
  source.fill(3);
  for (int user = 0; user < 2; ++user) {
    std::thread([&] {
      EXPECT_TRUE(backend_->adopt().ok());
      Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece}}});
      EXPECT_TRUE(run(queue, Op::kWrite, target, source.data(), source.size(), 0).ok());
      EXPECT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), 0).ok());
      queue.wait(backend_->now_ns() + 1000);
    }).join();
    EXPECT_TRUE(read == source);
  }
}

TEST_P(QueueTest, RegisteredMemoryMovesTheSameBytes) {
  Buffer memory(8 * kPiece), elsewhere(8 * kPiece);
  const std::span<std::byte> regions[] = {{memory.data() + 4 * kPiece, 4 * kPiece},
                                          {memory.data(), 3 * kPiece}};
  const Status registered = backend_->register_memory(regions);
  if (GetParam() == Kind::kUring) {
    EXPECT_TRUE(registered.ok() || registered.code() == Code::kResourceExhausted) << registered.to_string();
  } else {
    EXPECT_EQ(registered.code(), Code::kUnimplemented);
  }
  const File target = file("data");
  Queue queue(*backend_,
              {.drives = {{.piece_bytes = 1000}}});  // pieces within, across and outside of the regions
  memory.fill(4);
  ASSERT_TRUE(run(queue, Op::kWrite, target, memory.data(), memory.size(), 0).ok());
  ASSERT_TRUE(run(queue, Op::kRead, target, elsewhere.data(), elsewhere.size(), 0).ok());
  EXPECT_TRUE(memory == elsewhere);
  memory.fill(5);
  ASSERT_TRUE(run(queue, Op::kRead, target, memory.data(), memory.size(), 0).ok());
  EXPECT_TRUE(memory == elsewhere);
}

}  // namespace
}  // namespace sluice::io
