#include <gtest/gtest.h>
#include <sys/mman.h>

#include <deque>
#include <vector>

#include "io/queue.hpp"
#include "rated_backend.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::io {
namespace {

constexpr std::uint32_t kPiece = 1 << 20;

/// Several drives on a manual clock, and transfers that are submitted again when they end, as long as wanted.
class QueueDriveTest : public testing::Test {
 protected:
  struct Repeated : Transfer {
    Queue* queue = nullptr;
    std::uint64_t left = 0;
  };

  File open(const std::string& name) {
    Result<Directory> directory = Directory::open(temporary_.path(), Access::kReadWrite);
    return File::open(*directory, name, {.creation = Creation::kIfMissing, .caching = Caching::kDirect})
        .value();
  }

  /// `count` transfers of one piece, each made `times` over.
  std::deque<Repeated>& load(Queue& queue, std::uint32_t drive, const File& file, Op op, Priority priority,
                             std::uint32_t count, std::uint64_t times) {
    std::deque<Repeated>& group = loads_.emplace_back(count);
    for (Repeated& transfer : group) {
      transfer.op = op;
      transfer.priority = priority;
      transfer.drive = drive;
      transfer.file = &file;
      transfer.buffer = memory_;
      transfer.bytes = kPiece;
      transfer.queue = &queue;
      transfer.left = times;
      transfer.on_done = [](Transfer& done) {
        Repeated& self = static_cast<Repeated&>(done);
        if (--self.left > 0 && self.status.ok()) self.queue->submit(self);
      };
      queue.submit(transfer);
    }
    return group;
  }

  void SetUp() override {
    void* reserved =
        ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(reserved, MAP_FAILED);
    memory_ = static_cast<std::byte*>(reserved);
  }
  void TearDown() override { ::munmap(memory_, kReserved); }

  static constexpr std::uint64_t kReserved = std::uint64_t{10} << 30;
  sim::TemporaryDirectory temporary_;
  std::byte* memory_ = nullptr;
  std::deque<std::deque<Repeated>> loads_;
};

TEST_F(QueueDriveTest, EachDriveHasTheDepthOfItsSettings) {
  const File first = open("first"), second = open("second"), third = open("third");
  RatedBackend backend(64);
  Queue queue(backend, {.drives = {{.depth = 3}, {.depth = 40}, {.depth = 1}}});
  load(queue, 0, first, Op::kRead, Priority::kDemand, 100, 2);
  load(queue, 1, second, Op::kWrite, Priority::kDemand, 100, 2);
  load(queue, 2, third, Op::kRead, Priority::kReadAhead, 100, 2);
  queue.drain();
  EXPECT_EQ(backend.most_in_flight(first.fd()), 3u);
  EXPECT_EQ(backend.most_in_flight(second.fd()), 40u);
  EXPECT_EQ(backend.most_in_flight(third.fd()), 1u);
}

TEST_F(QueueDriveTest, AWaitForSeveralSleepsOnceForThem) {
  const File first = open("first");
  RatedBackend backend(8);
  Queue queue(backend, {.drives = {{.depth = 8}}});
  load(queue, 0, first, Op::kRead, Priority::kDemand, 8, 3);
  std::size_t sleeps = 0;
  for (std::size_t delivered = 0; delivered < 24; ++sleeps) {
    queue.wait(kNoDeadline, 3);
    const std::size_t now = queue.poll();
    EXPECT_EQ(now, std::min<std::size_t>(3, 24 - delivered));
    delivered += now;
  }
  EXPECT_EQ(sleeps, 8u);
  EXPECT_EQ(queue.in_flight(), 0u);
}

TEST_F(QueueDriveTest, ABackendOfLessDepthIsSharedInProportion) {
  const File first = open("first"), second = open("second"), third = open("third");
  struct Case {
    std::uint32_t depth;
    std::vector<std::uint32_t> asked;
    std::vector<std::uint32_t> given;
  };
  for (const Case& given :
       {Case{64, {100, 10, 1}, {56, 6, 1}}, Case{64, {1000, 1000, 1000}, {21, 21, 21}},
        Case{4, {100, 1, 1}, {2, 1, 1}}, Case{3, {9, 9, 9}, {1, 1, 1}}, Case{64, {32, 31, 1}, {32, 31, 1}}}) {
    RatedBackend backend(given.depth);
    QueueOptions options{.drives = {}};
    for (const std::uint32_t depth : given.asked) options.drives.push_back({.depth = depth});
    Queue queue(backend, options);
    std::uint32_t drive = 0;
    for (const File* file : {&first, &second, &third})
      load(queue, drive++, *file, Op::kRead, Priority::kDemand, 100, 2);
    queue.drain();
    drive = 0;
    for (const File* file : {&first, &second, &third})
      EXPECT_EQ(backend.most_in_flight(file->fd()), given.given[drive++]) << given.depth;
  }
}

TEST_F(QueueDriveTest, FewerPlacesThanDrivesServeEveryDrive) {
  const File first = open("first"), second = open("second"), third = open("third");
  RatedBackend backend(2);
  Queue queue(backend, {.drives = {3, {.depth = 8}}});
  load(queue, 0, first, Op::kRead, Priority::kDemand, 20, 50);
  load(queue, 1, second, Op::kRead, Priority::kDemand, 20, 50);
  const auto& last = load(queue, 2, third, Op::kRead, Priority::kDemand, 1, 20);
  for (int polls = 0; last[0].left > 0; ++polls) {
    ASSERT_LT(polls, 400);
    queue.wait();
    queue.poll();
  }
  queue.drain();
}

TEST_F(QueueDriveTest, ADriveThatHangsKeepsNoOtherFromItsDepth) {
  const File hung = open("hung"), lively = open("lively");
  for (const std::uint32_t depth : {8u, 64u}) {
    RatedBackend backend(depth);
    backend.set(hung.fd(), {.hangs = true});
    Queue queue(backend, {.drives = {2, {.depth = 8}}});
    load(queue, 0, hung, Op::kWrite, Priority::kDemand, 100, 1);
    const auto& work = load(queue, 1, lively, Op::kRead, Priority::kReadAhead, 100, 5);
    for (int polls = 0; std::any_of(work.begin(), work.end(), [](const Repeated& t) { return t.left > 0; });
         ++polls) {
      ASSERT_LT(polls, 10'000);
      queue.wait();
      queue.poll();
    }
    EXPECT_EQ(backend.most_in_flight(lively.fd()), std::min(8u, depth / 2));
    EXPECT_EQ(backend.in_flight(hung.fd()), std::min(8u, depth / 2));
    backend.release();
    queue.drain();
  }
}

TEST_F(QueueDriveTest, TheClockIsReadOnceAPollAtMost) {
  const File file = open("data");
  RatedBackend backend(64);
  Queue queue(backend, {.drives = {{.depth = 32}}, .depth_use = DepthUse::kAdapted});
  load(queue, 0, file, Op::kRead, Priority::kDemand, 64, 100);
  std::uint64_t turns = 0;
  while (queue.in_flight() > 0) {
    queue.wait();
    queue.poll();
    ++turns;
  }
  EXPECT_LE(backend.clock_reads(), turns + 1);
}

TEST_F(QueueDriveTest, AnAdaptedDepthSettlesWhereTheDriveIsJustBusy) {
  const File file = open("data");
  RatedBackend backend(64);
  // 4 GB/s x 2 ms are 8 MB: about 8 pieces in flight.
  backend.set(file.fd(), {.bytes_per_s = 4e9, .latency_ns = 2'000'000});
  Queue queue(backend, {.drives = {{.piece_bytes = kPiece, .depth = 64}}, .depth_use = DepthUse::kAdapted});
  load(queue, 0, file, Op::kRead, Priority::kDemand, 100, 300);
  std::vector<std::uint32_t> depths;
  const std::int64_t begin_ns = backend.now_ns();
  while (queue.in_flight() > 0) {
    queue.wait();
    queue.poll();
    depths.push_back(queue.depth(0));
  }
  const double bytes_per_s = 30'000.0 * kPiece / static_cast<double>(backend.now_ns() - begin_ns) * 1e9;
  EXPECT_GE(bytes_per_s, 0.97 * 4e9);
  std::nth_element(depths.begin(), depths.begin() + static_cast<std::ptrdiff_t>(depths.size() / 2),
                   depths.end());
  EXPECT_GE(depths[depths.size() / 2], 8u);
  EXPECT_LE(depths[depths.size() / 2], 13u);
}

TEST_F(QueueDriveTest, AFixedDepthStaysFixed) {
  const File file = open("data");
  RatedBackend backend(64);
  backend.set(file.fd(), {.bytes_per_s = 4e9, .latency_ns = 1000});
  Queue queue(backend, {.drives = {{.depth = 64}}});
  load(queue, 0, file, Op::kRead, Priority::kDemand, 100, 100);
  while (queue.in_flight() > 0) {
    queue.wait();
    queue.poll();
    ASSERT_EQ(queue.depth(0), 64u);
  }
}

TEST_F(QueueDriveTest, ADemandReadIsSubmittedAtOnceThoughWriteBehindHasFilledItsShare) {
  const File file = open("data");
  RatedBackend backend(64);
  Queue queue(backend, {.drives = {{.depth = 16}}});
  load(queue, 0, file, Op::kRead, Priority::kReadAhead, 1, 1);  // reads are at work here
  queue.drain();
  backend.set(file.fd(), {.hangs = true});
  load(queue, 0, file, Op::kWrite, Priority::kBackground, 100, 1);
  queue.poll();
  EXPECT_EQ(backend.in_flight(file.fd()), 14u);
  load(queue, 0, file, Op::kRead, Priority::kDemand, 1, 1);
  queue.poll();
  EXPECT_EQ(backend.in_flight(file.fd()), 15u);
  backend.release();
  queue.drain();
}

TEST_F(QueueDriveTest, WhatOnDoneSubmitsIsSentByTheSamePoll) {
  const File file = open("data");
  RatedBackend backend(8);
  Queue queue(backend, {});
  load(queue, 0, file, Op::kRead, Priority::kDemand, 1, 2);
  queue.wait();
  EXPECT_EQ(queue.poll(), 1u);
  EXPECT_EQ(backend.in_flight(file.fd()), 1u);
  queue.drain();
}

TEST_F(QueueDriveTest, NoRequestExceedsWhatTheBackendTakes) {
  const File file = open("data");
  constexpr std::uint64_t kBytes = std::uint64_t{9} << 30;
  for (const std::uint32_t most : {kMaxRequestBytes, 100'000'000u, 5000u * 4096u + 1}) {
    RatedBackend backend(8);
    backend.set_max_request_bytes(most);
    Queue queue(backend, {.drives = {{.piece_bytes = 0xffffffff, .depth = 8}}});
    auto& transfers = load(queue, 0, file, Op::kRead, Priority::kDemand, 1, 2);
    transfers[0].bytes = kBytes;
    transfers[0].offset = std::uint64_t{1} << 40;
    queue.drain();
    EXPECT_TRUE(transfers[0].status.ok()) << transfers[0].status.to_string();
    EXPECT_EQ(transfers[0].done_bytes, kBytes);
    EXPECT_EQ(queue.counters().bytes_read, 2 * kBytes);
    const std::uint32_t grid = file.grid().offset_bytes;
    EXPECT_EQ(backend.most_bytes(), most / grid * grid);
  }
}

}  // namespace
}  // namespace sluice::io
