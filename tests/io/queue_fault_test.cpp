#include <gmock/gmock.h>
#include <unistd.h>

#include <deque>

#include "queue_fixture.hpp"

namespace sluice::io {
namespace {

using sim::Fault;
using testing::HasSubstr;

constexpr std::uint64_t kPiece = 4096;

class QueueFaultTest : public QueueTest {
 protected:
  /// A file of `bytes` random bytes, also in `content`.
  void write_content(const File& target, Buffer& content) {
    content.fill(seed_);
    Queue queue(*backend_, {});
    ASSERT_TRUE(run(queue, Op::kWrite, target, content.data(), content.size(), 0).ok());
    ASSERT_TRUE(run(queue, Op::kFlush, target, nullptr, 0, 0).ok());
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, QueueFaultTest, kEveryBackend, kind_name);

TEST_P(QueueFaultTest, ShortTransfersAreResumedToTheLastByte) {
  const File target = file("data");
  Buffer source(100'001), read(100'001);
  source.fill(1);
  for (const Op op : {Op::kRead, Op::kWrite})
    backend_->faults().add({.op = op, .error = Fault::kShort, .probability = 0.6});
  Queue queue(*backend_, {.drives = {{.piece_bytes = 3000}}});
  ASSERT_TRUE(run(queue, Op::kWrite, target, source.data(), source.size(), 0).ok());
  ASSERT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), 0).ok());
  EXPECT_TRUE(read == source);
  EXPECT_GT(queue.counters().short_transfers, 20u);
  EXPECT_EQ(queue.counters().bytes_read, source.size());
  EXPECT_EQ(queue.counters().errors, 0u);
}

TEST_P(QueueFaultTest, ShortTransfersOfDirectFilesAreResumedOnTheGrid) {
  File target = file("data", Caching::kDirect);
  if (!target.direct()) GTEST_SKIP() << target.fallback_reason();
  const std::uint32_t grid = target.grid().offset_bytes;
  Buffer source(100 * grid), read(100 * grid);
  ASSERT_TRUE(target.preallocate(source.size()).ok());
  source.fill(1);
  Queue queue(*backend_, {.drives = {{.piece_bytes = 8 * grid}}});
  ASSERT_TRUE(run(queue, Op::kWrite, target, source.data(), source.size(), 0).ok());
  ASSERT_TRUE(run(queue, Op::kFlush, target, nullptr, 0, 0).ok());
  // A request of an odd length would be refused below, so only the simulation may cut anywhere.
  if (GetParam() == Kind::kSimulation)
    backend_->faults().add({.op = Op::kRead, .error = Fault::kShort, .probability = 0.5});
  ASSERT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), 0).ok());
  EXPECT_TRUE(read == source);
  for (const auto& entry : backend_->log()) EXPECT_EQ((entry.offset | entry.bytes) % grid, 0u);
}

TEST_P(QueueFaultTest, WhatWasInterruptedOrFoundTheKernelBusyIsSentAgain) {
  const File target = file("data");
  Buffer content(20 * kPiece), read(20 * kPiece);
  write_content(target, content);
  backend_->faults().add({.op = Op::kRead, .error = EINTR, .probability = 0.3});
  for (const int error : {EAGAIN, EBUSY, ENOMEM})
    backend_->faults().add({.op = Op::kRead, .error = error, .probability = 0.2});
  backend_->faults().add({.op = Op::kFlush, .error = EINTR, .count = 3});
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece}}});
  ASSERT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), 0).ok());
  ASSERT_TRUE(run(queue, Op::kFlush, target, nullptr, 0, 0).ok());
  EXPECT_TRUE(read == content);
  EXPECT_GT(queue.counters().retries, 5u);
  EXPECT_EQ(queue.counters().reads + queue.counters().flushes, 21u + queue.counters().retries);
}

TEST_P(QueueFaultTest, EndlessEagainFailsInTheEndAndLetsOthersPass) {
  const File stuck = file("stuck"), lively = file("lively");
  backend_->faults().add({.op = Op::kWrite, .error = EAGAIN, .fd = stuck.fd()});
  Queue queue(*backend_, {.drives = {{.depth = 2}}});
  Buffer memory(kPiece);
  Counted first, second;
  describe(first, Op::kWrite, stuck, memory.data(), kPiece, 0);
  describe(second, Op::kWrite, lively, memory.data(), kPiece, 0);
  queue.submit(first);
  queue.submit(second);
  while (second.completions == 0) {
    queue.wait();
    queue.poll();
  }
  EXPECT_EQ(first.completions, 0);
  queue.drain();
  EXPECT_EQ(first.status.code(), Code::kIoError);
  EXPECT_EQ(first.status.native(), EAGAIN);
  EXPECT_EQ(queue.counters().retries, Queue::kMaxTries - 1);
  EXPECT_TRUE(second.status.ok());
}

TEST_P(QueueFaultTest, EndlessInterruptionsFailInTheEnd) {
  const File target = file("data");
  backend_->faults().add({.op = Op::kFlush, .error = EINTR});
  Queue queue(*backend_, {});
  const Status status = run(queue, Op::kFlush, target, nullptr, 0, 0);
  EXPECT_EQ(status.native(), EINTR);
  EXPECT_THAT(status.message(), HasSubstr("tried 1000 times"));
}

TEST_P(QueueFaultTest, OneEioFailsOneTransferAndNotTheNext) {
  const File target = file("data");
  Buffer content(8 * kPiece), read(8 * kPiece);
  write_content(target, content);
  backend_->faults().add({.op = Op::kRead, .error = EIO, .skip = 2, .count = 1});
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece}}});
  const Status status = run(queue, Op::kRead, target, read.data(), read.size(), 0);
  EXPECT_EQ(status.code(), Code::kIoError);
  EXPECT_EQ(status.native(), EIO);
  EXPECT_THAT(status.message(), HasSubstr("read of 4096 bytes at offset 8192 of " + target.path()));
  EXPECT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), 0).ok());
  EXPECT_TRUE(read == content);
  EXPECT_EQ(queue.counters().errors, 1u);
}

TEST_P(QueueFaultTest, EioForEverFailsEveryTransferOnce) {
  const File target = file("data");
  backend_->faults().add({.op = Op::kWrite, .error = EIO});
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 4}}});
  Buffer memory(6 * kPiece);
  std::deque<Counted> transfers(10);
  for (Counted& transfer : transfers) {
    describe(transfer, Op::kWrite, target, memory.data(), memory.size(), 0);
    queue.submit(transfer);
  }
  queue.drain();
  for (const Counted& transfer : transfers) {
    EXPECT_EQ(transfer.completions, 1);
    EXPECT_EQ(transfer.status.native(), EIO);
    EXPECT_EQ(transfer.done_bytes, 0u);
  }
  EXPECT_EQ(queue.counters().errors, 10u);
}

TEST_P(QueueFaultTest, AFailedTransferKeepsItsBufferUntilTheLastPieceIsBack) {
  const File broken = file("broken");
  backend_->faults().add({.op = Op::kWrite, .error = EIO, .count = 1});
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 4}}});
  Buffer memory(8 * kPiece);
  Counted transfer;
  describe(transfer, Op::kWrite, broken, memory.data(), memory.size(), 0);
  struct Context {
    sim::FaultyBackend* backend;
    std::uint32_t in_flight;
  } context{backend_.get(), ~0u};
  transfer.owner = &context;
  transfer.on_done = [](Transfer& done) {
    ++static_cast<Counted&>(done).completions;
    Context& seen = *static_cast<Context*>(done.owner);
    seen.in_flight = seen.backend->in_flight();
  };
  queue.submit(transfer);
  queue.drain();
  EXPECT_EQ(transfer.completions, 1);
  EXPECT_EQ(context.in_flight, 0u);
  EXPECT_LE(backend_->log().size(), 7u);  // nothing more was cut after the failure was seen
}

TEST_P(QueueFaultTest, NothingOfAFailedTransferIsSentAgain) {
  const File target = file("data");
  Buffer memory(8 * kPiece);
  for (const auto& [first, second] : {std::pair(EIO, EAGAIN), std::pair(EAGAIN, EIO)}) {
    backend_->faults().clear();
    backend_->faults().add({.op = Op::kWrite, .error = first, .count = 1});
    backend_->faults().add({.op = Op::kWrite, .error = second, .count = 1});
    const std::size_t before = backend_->log().size();
    Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 2}}});
    EXPECT_EQ(run(queue, Op::kWrite, target, memory.data(), memory.size(), 0).native(), EIO);
    EXPECT_EQ(backend_->log().size(), before + 2);
    EXPECT_EQ(queue.counters().retries, first == EAGAIN ? 1u : 0u);
  }
}

TEST_P(QueueFaultTest, AFullDriveIsNoSpaceNamingTheFile) {
  const File target = file("data");
  for (const int error : {ENOSPC, EDQUOT}) {
    backend_->faults().clear();
    backend_->faults().add({.op = Op::kWrite, .error = error});
    Queue queue(*backend_, {});
    Buffer memory(kPiece);
    const Status status = run(queue, Op::kWrite, target, memory.data(), kPiece, 3 * kPiece);
    EXPECT_EQ(status.code(), Code::kNoSpace);
    EXPECT_EQ(status.native(), error);
    EXPECT_THAT(status.message(), HasSubstr("write of 4096 bytes at offset 12288 of " + target.path()));
  }
}

TEST_P(QueueFaultTest, AFileTruncatedUnderneathIsDataLoss) {
  for (const Caching caching : {Caching::kBuffered, Caching::kDirect}) {
    const File target = file("data", caching);
    Buffer content(16 * kPiece);
    write_content(target, content);
    for (const std::int64_t left :
         {std::int64_t{0}, std::int64_t{4 * kPiece}, std::int64_t{4 * kPiece + 1000}}) {
      ASSERT_EQ(::ftruncate(target.fd(), left), 0);
      Queue queue(*backend_, {.drives = {{.piece_bytes = 16 * kPiece}}});  // one request meets the end
      const Status status = run(queue, Op::kRead, target, content.data(), content.size(), 0);
      EXPECT_EQ(status.code(), Code::kDataLoss) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("truncated"));
      EXPECT_EQ(queue.counters().retries, 0u);
      ASSERT_EQ(::ftruncate(target.fd(), 16 * kPiece), 0);
    }
  }
}

TEST_P(QueueFaultTest, AReadOfNothingBeforeTheEndIsTriedAgain) {
  for (const Caching caching : {Caching::kBuffered, Caching::kDirect}) {
    backend_->faults().clear();
    const File target = file(caching == Caching::kBuffered ? "buffered" : "direct", caching);
    Buffer content(8 * kPiece), read(8 * kPiece);
    write_content(target, content);
    backend_->faults().add({.op = Op::kRead, .error = Fault::kNothing, .skip = 3, .count = 5});
    Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece}}});
    ASSERT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), 0).ok());
    EXPECT_TRUE(read == content);
    EXPECT_EQ(queue.counters().retries, 5u);
    if (GetParam() != Kind::kSimulation) continue;  // a second of pauses
    backend_->faults().add({.op = Op::kRead, .error = Fault::kNothing});
    const Status status = run(queue, Op::kRead, target, read.data(), kPiece, 0);
    EXPECT_EQ(status.code(), Code::kIoError);
    EXPECT_THAT(status.message(), HasSubstr("tried 1000 times"));
  }
}

TEST_P(QueueFaultTest, AWriteOfNothingIsTriedAgainAndFailsInTheEnd) {
  const File target = file("data");
  Buffer content(kPiece);
  backend_->faults().add({.op = Op::kWrite, .error = Fault::kNothing, .count = 5});
  Queue queue(*backend_, {});
  EXPECT_TRUE(run(queue, Op::kWrite, target, content.data(), kPiece, 0).ok());
  if (GetParam() != Kind::kSimulation) return;  // a second of pauses
  backend_->faults().add({.op = Op::kWrite, .error = Fault::kNothing});
  EXPECT_EQ(run(queue, Op::kWrite, target, content.data(), kPiece, 0).code(), Code::kIoError);
}

TEST_P(QueueFaultTest, AFailureAfterAPartWasMovedCountsThePartOnceAndFailsTheTransfer) {
  const File target = file("data");
  Buffer content(64 * kPiece);
  write_content(target, content);
  for (const Op op : {Op::kRead, Op::kWrite}) {
    backend_->faults().clear();
    backend_->faults().add({.op = op, .error = Fault::kShort, .count = 1});
    backend_->faults().add({.op = op, .error = EIO, .count = 1});  // the rest of the same request
    Queue queue(*backend_, {.drives = {{.piece_bytes = 1 << 20}}});
    Counted transfer;
    describe(transfer, op, target, content.data(), content.size(), 0);
    queue.submit(transfer);
    queue.drain();
    EXPECT_EQ(transfer.completions, 1);
    EXPECT_EQ(transfer.status.native(), EIO);
    EXPECT_GT(transfer.done_bytes, 0u);
    EXPECT_LT(transfer.done_bytes, content.size());
    const QueueCounters& counted = queue.counters();
    EXPECT_EQ(counted.bytes_read + counted.bytes_written, transfer.done_bytes);
    EXPECT_EQ(counted.errors, 1u);
    EXPECT_EQ(counted.reads + counted.writes, 2u);
  }
}

TEST_P(QueueFaultTest, ABackendThatTakesOneRequestACallStillMovesEverything) {
  const File target = file("data");
  Buffer content(100 * kPiece), read(100 * kPiece);
  write_content(target, content);
  backend_->take_at_most(1);
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 16}}});
  ASSERT_TRUE(run(queue, Op::kRead, target, read.data(), read.size(), 0).ok());
  EXPECT_TRUE(read == content);
  EXPECT_EQ(queue.counters().reads, 100u);
  EXPECT_LE(queue.counters().max_in_flight, 16u);
}

TEST_P(QueueFaultTest, ClosingWithHundredsInFlightUnderFaultsCompletesEachOnce) {
  const File stuck = file("stuck"), target = file("data");
  for (const int error : {EAGAIN, EINTR, EIO, Fault::kShort})
    backend_->faults().add({.op = Op::kWrite, .error = error, .probability = 0.2});
  backend_->shuffle();
  std::deque<Counted> transfers(400);
  std::deque<Buffer> memory;
  backend_->hold(stuck.fd());
  {
    Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 60}}});
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      memory.emplace_back(2 * kPiece);
      describe(transfers[i], Op::kWrite, i % 2 == 0 ? stuck : target, memory.back().data(), 2 * kPiece,
               i * 2 * kPiece);
      transfers[i].priority = static_cast<Priority>(i % kPriorityCount);
      queue.submit(transfers[i]);
    }
    for (int polls = 0; polls < 20; ++polls) queue.poll();
    backend_->release();
  }
  for (const Counted& transfer : transfers) {
    EXPECT_EQ(transfer.completions, 1);
    EXPECT_EQ(transfer.status.ok(), transfer.done_bytes == 2 * kPiece) << transfer.status.to_string();
  }
  EXPECT_EQ(backend_->in_flight(), 0u);
}

/// Reads and writes of random places and lengths under every transient fault, against an array that has the
/// same done to it.
TEST_P(QueueFaultTest, MixedTransfersAgreeWithAPlainArray) {
  std::mt19937_64 random(seed_);
  const auto below = [&](std::uint64_t end) { return random() % end; };
  constexpr std::uint64_t kPlaces = 24, kPlaceBytes = 20'000;
  const File target = file("data");
  Buffer model(kPlaces * kPlaceBytes);
  write_content(target, model);
  for (const Op op : {Op::kRead, Op::kWrite}) {
    backend_->faults().add({.op = op, .error = EINTR, .probability = 0.05});
    backend_->faults().add({.op = op, .error = EAGAIN, .probability = 0.05});
    backend_->faults().add({.op = op, .error = Fault::kShort, .probability = 0.2});
  }

  backend_->shuffle();
  struct Job : Counted {
    Buffer memory{kPlaceBytes};
    bool busy = false;
  };
  std::vector<Job> jobs(kPlaces);  // job i works on place i alone, so that the array says what it must see
  Queue queue(*backend_, {.drives = {{.piece_bytes = 4000, .depth = 7}}});
  int reads = 0;
  for (int started = 0; started < 600 || queue.in_flight() > 0;) {
    for (std::size_t place = 0; place < kPlaces; ++place) {
      Job& job = jobs[place];
      if (job.busy && job.completions == 0) continue;
      std::byte* truth = model.data() + job.offset;
      if (job.busy) {
        ASSERT_TRUE(job.status.ok()) << job.status.to_string();
        if (job.op == Op::kRead) {
          ASSERT_EQ(std::memcmp(job.memory.data(), truth, job.bytes), 0);
          ++reads;
        }
        job.busy = false;
      }
      if (started >= 600 || below(2) == 0) continue;
      job.completions = 0;
      const std::uint64_t begin = below(kPlaceBytes);
      describe(job, below(2) == 0 ? Op::kRead : Op::kWrite, target, job.memory.data(),
               below(kPlaceBytes - begin + 1), place * kPlaceBytes + begin);
      job.priority = static_cast<Priority>(below(kPriorityCount));
      job.memory.fill(random());
      if (job.op == Op::kWrite) std::memcpy(model.data() + job.offset, job.memory.data(), job.bytes);
      job.busy = true;
      queue.submit(job);
      ++started;
    }
    queue.poll();
    if (queue.in_flight() > 0 && below(4) == 0) queue.wait();
  }
  EXPECT_GT(reads, 200);
  EXPECT_GT(queue.counters().retries, 20u);
  EXPECT_GT(queue.counters().short_transfers, 20u);
  backend_->faults().clear();
  Buffer all(model.size());
  ASSERT_TRUE(run(queue, Op::kRead, target, all.data(), all.size(), 0).ok());
  EXPECT_TRUE(all == model);
}

}  // namespace
}  // namespace sluice::io
