#include "support/sim_backend.hpp"

#include <algorithm>
#include <set>

#include "queue_fixture.hpp"

namespace sluice::io {
namespace {

using sim::Crash;
using sim::Fault;
using sim::SimBackend;
using sim::SimWorld;

constexpr std::uint64_t kSector = 512;

class SimBackendTest : public testing::Test {
 protected:
  static File open(const std::string& path) {
    return File::open(Directory::open(path, Access::kReadWrite).value(), "data",
                      {.creation = Creation::kIfMissing, .caching = Caching::kBuffered})
        .value();
  }

  static Status run(Queue& queue, Op op, const File& file, const Buffer& memory) {
    Transfer transfer;
    transfer.op = op;
    transfer.file = &file;
    transfer.buffer = memory.data();
    transfer.bytes = op == Op::kFlush ? 0 : memory.size();
    queue.submit(transfer);
    queue.drain();
    return transfer.status;
  }

  /// How many of the file's sectors equal `content`'s.
  std::uint64_t sectors_equal(const Buffer& content) const {
    std::vector<std::byte> found(content.size());
    EXPECT_TRUE(file_.read_exact(0, found).ok());
    std::uint64_t equal = 0;
    for (std::size_t at = 0; at < found.size(); at += kSector) {
      equal += std::memcmp(found.data() + at, content.data() + at, kSector) == 0 ? 1 : 0;
    }
    return equal;
  }

  const std::uint64_t seed_ = sim::seed_or(7);
  testing::ScopedTrace trace_{__FILE__, __LINE__, "SLUICE_TEST_SEED=" + std::to_string(seed_)};
  sim::TemporaryDirectory temporary_;
  File file_ = open(temporary_.path());
  SimWorld world_{seed_};
};

TEST_F(SimBackendTest, ReadsSeeWritesThatTheFileDoesNotHaveYet) {
  SimBackend drive(world_, {});
  Queue queue(drive, {});
  Buffer content(40 * kSector), read(40 * kSector), nothing(40 * kSector);
  content.fill(1);
  ASSERT_TRUE(run(queue, Op::kWrite, file_, content).ok());
  EXPECT_EQ(drive.unflushed_sectors(), 40u);
  EXPECT_EQ(sectors_equal(nothing), 40u);
  ASSERT_TRUE(run(queue, Op::kRead, file_, read).ok());
  EXPECT_TRUE(read == content);
}

TEST_F(SimBackendTest, AFlushMakesWritesSurviveAPowerLoss) {
  SimBackend drive(world_, {});
  Queue queue(drive, {});
  Buffer content(40 * kSector);
  content.fill(1);
  ASSERT_TRUE(run(queue, Op::kWrite, file_, content).ok());
  ASSERT_TRUE(run(queue, Op::kFlush, file_, content).ok());
  drive.crash(Crash::kPowerLost);
  EXPECT_EQ(sectors_equal(content), 40u);
}

TEST_F(SimBackendTest, APowerLossForgetsSomeUnflushedSectorsAndAKilledProcessNone) {
  for (const Crash crash : {Crash::kPowerLost, Crash::kProcessKilled}) {
    SimBackend drive(world_, {});
    Queue queue(drive, {});
    Buffer content(400 * kSector);
    content.fill(static_cast<std::uint64_t>(crash) + 1);
    ASSERT_TRUE(run(queue, Op::kWrite, file_, content).ok());
    drive.crash(crash);
    const std::uint64_t kept = sectors_equal(content);
    if (crash == Crash::kProcessKilled) {
      EXPECT_EQ(kept, 400u);
    } else {
      EXPECT_GT(kept, 100u);
      EXPECT_LT(kept, 300u);
    }
  }
}

TEST_F(SimBackendTest, ACrashTearsWritesInFlightAndFailsThem) {
  SimBackend drive(world_, {});
  Queue queue(drive, {.drives = {{.piece_bytes = 100 * kSector}}});
  Buffer content(400 * kSector), nothing(400 * kSector);
  content.fill(1);
  ASSERT_TRUE(run(queue, Op::kWrite, file_, nothing).ok());
  Transfer write;
  write.op = Op::kWrite;
  write.file = &file_;
  write.buffer = content.data();
  write.bytes = content.size();
  queue.submit(write);
  queue.poll();
  drive.crash(Crash::kProcessKilled);
  queue.drain();
  EXPECT_EQ(write.status.native(), EIO);
  EXPECT_EQ(run(queue, Op::kRead, file_, content).native(), EIO);
  const std::uint64_t happened = sectors_equal(content);
  EXPECT_GT(happened, 100u);
  EXPECT_LT(happened, 300u);
}

TEST_F(SimBackendTest, ACleanEndKeepsUnflushedWrites) {
  Buffer content(40 * kSector);
  content.fill(1);
  {
    SimBackend drive(world_, {});
    Queue queue(drive, {});
    ASSERT_TRUE(run(queue, Op::kWrite, file_, content).ok());
  }
  EXPECT_EQ(sectors_equal(content), 40u);
}

TEST_F(SimBackendTest, CompletionsComeInAnotherOrderThanSubmissionsAndTheSameForOneSeed) {
  const auto order = [this](std::uint64_t seed) {
    SimWorld world(seed);
    SimBackend drive(world, {});
    Queue queue(drive, {});
    struct Numbered : Transfer {
      int number = 0;
    };
    std::vector<int> finished;
    std::vector<Numbered> writes(30);
    Buffer memory(kSector);
    for (int i = 0; i < 30; ++i) {
      Numbered& write = writes[static_cast<std::size_t>(i)];
      write.op = Op::kWrite;
      write.file = &file_;
      write.buffer = memory.data();
      write.bytes = kSector;
      write.offset = static_cast<std::uint64_t>(i) * kSector;
      write.number = i;
      write.owner = &finished;
      write.on_done = [](Transfer& done) {
        static_cast<std::vector<int>*>(done.owner)->push_back(static_cast<Numbered&>(done).number);
      };
      queue.submit(write);
    }
    queue.drain();
    return finished;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
  const std::vector<int> first = order(1);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
}

TEST_F(SimBackendTest, ItsFaultsHitTheChosenRequests) {
  SimBackend drive(world_, {});
  Queue queue(drive, {});
  Buffer content(4 * kSector);
  drive.faults().add({.op = Op::kWrite, .error = EIO, .skip = 1, .count = 2});
  EXPECT_TRUE(run(queue, Op::kWrite, file_, content).ok());
  EXPECT_EQ(run(queue, Op::kWrite, file_, content).native(), EIO);
  EXPECT_EQ(run(queue, Op::kWrite, file_, content).native(), EIO);
  EXPECT_TRUE(run(queue, Op::kWrite, file_, content).ok());
  drive.faults().add({.op = Op::kRead, .error = EIO, .fd = file_.fd() + 1});
  EXPECT_TRUE(run(queue, Op::kRead, file_, content).ok());
}

TEST_F(SimBackendTest, WaitingWithNothingPendingReturnsAndTheWorldIsIdle) {
  SimBackend drive(world_, {});
  drive.wait(kNoDeadline, 1);
  EXPECT_TRUE(world_.idle());
  drive.wait(5'000, 1);
  EXPECT_EQ(world_.now_ns(), 5'000);
}

TEST_F(SimBackendTest, WaitStopsAtItsDeadlineBeforeLaterEvents) {
  SimBackend drive(world_, {});
  bool ran = false;
  world_.post([&] { ran = true; }, 9'000);
  drive.wait(5'000, 1);
  EXPECT_FALSE(ran);
  EXPECT_EQ(world_.now_ns(), 5'000);
  world_.run_all();
  EXPECT_TRUE(ran);
  EXPECT_EQ(world_.now_ns(), 9'000);
}

}  // namespace
}  // namespace sluice::io
