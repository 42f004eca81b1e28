#include <deque>

#include "queue_fixture.hpp"

namespace sluice::io {
namespace {

constexpr std::uint64_t kPiece = 4096;

class QueueScheduleTest : public QueueTest {};
INSTANTIATE_TEST_SUITE_P(Backends, QueueScheduleTest, kEveryBackend, kind_name);

TEST_P(QueueScheduleTest, NeverHoldsMorePiecesThanItsDepth) {
  const File target = file("data");
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 5}}});
  Buffer memory(kPiece);
  std::deque<Counted> transfers(64);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    describe(transfers[i], Op::kWrite, target, memory.data(), kPiece, i * kPiece);
    queue.submit(transfers[i]);
  }
  queue.drain();
  EXPECT_EQ(backend_->max_in_flight(), 5u);
  EXPECT_EQ(queue.counters().max_in_flight, 5u);
}

TEST_P(QueueScheduleTest, NeverHoldsMorePiecesThanTheBackendTakes) {
  const File target = file("data");
  Queue queue(*backend_, {.drives = {2, {.piece_bytes = 512, .depth = 1000}}});
  Buffer memory(512 * 500);
  EXPECT_TRUE(run(queue, Op::kWrite, target, memory.data(), memory.size(), 0).ok());
  EXPECT_EQ(backend_->max_in_flight(), backend_->limits().depth / 2);
}

TEST_P(QueueScheduleTest, DemandGoesBeforeReadAheadBeforeWriteBehind) {
  const File target = file("data");
  Buffer memory(3 * kPiece);
  {
    Queue queue(*backend_, {});
    ASSERT_TRUE(run(queue, Op::kWrite, target, memory.data(), memory.size(), 0).ok());
  }
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 1}}});
  Counted behind, ahead, demand;
  describe(behind, Op::kWrite, target, memory.data(), kPiece, 0);
  describe(ahead, Op::kRead, target, memory.data() + kPiece, kPiece, kPiece);
  describe(demand, Op::kRead, target, memory.data() + 2 * kPiece, kPiece, 2 * kPiece);
  behind.priority = Priority::kBackground;
  ahead.priority = Priority::kReadAhead;
  const std::size_t before = backend_->log().size();
  for (Counted* transfer : {&behind, &ahead, &demand}) queue.submit(*transfer);
  queue.drain();
  ASSERT_EQ(backend_->log().size(), before + 3);
  EXPECT_EQ(backend_->log()[before].offset, 2 * kPiece);
  EXPECT_EQ(backend_->log()[before + 1].offset, kPiece);
  EXPECT_EQ(backend_->log()[before + 2].offset, 0u);
}

TEST_P(QueueScheduleTest, AnEndlessHigherClassDoesNotStarveTheLowest) {
  const File target = file("data");
  Queue queue(*backend_, {.drives = {{.piece_bytes = 512, .depth = 1}}});
  Buffer memory(512 * 100), late(1024);
  Counted demand, ahead, behind;
  describe(demand, Op::kWrite, target, memory.data(), memory.size(), 0);
  describe(ahead, Op::kWrite, target, memory.data(), memory.size(), memory.size());
  describe(behind, Op::kWrite, target, late.data(), late.size(), 1 << 20);
  ahead.priority = Priority::kReadAhead;
  behind.priority = Priority::kBackground;
  for (Counted* transfer : {&demand, &ahead, &behind}) queue.submit(*transfer);
  queue.drain();
  std::size_t first_behind = 0;
  while (backend_->log()[first_behind].offset < 1 << 20) ++first_behind;
  EXPECT_GE(first_behind, 4u);
  EXPECT_LE(first_behind, DriveLane::kPatience + 1);
}

TEST_P(QueueScheduleTest, TransfersOfOneClassStartInTheirOrder) {
  const File target = file("data");
  Queue queue(*backend_, {.drives = {{.piece_bytes = kPiece, .depth = 3}}});
  Buffer memory(kPiece);
  std::deque<Counted> transfers(20);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    describe(transfers[i], Op::kWrite, target, memory.data(), kPiece, i * kPiece);
    queue.submit(transfers[i]);
  }
  queue.drain();
  for (std::size_t i = 0; i < transfers.size(); ++i) EXPECT_EQ(backend_->log()[i].offset, i * kPiece);
}

TEST_P(QueueScheduleTest, ASlowDriveDoesNotHoldUpAnother) {
  const File slow = file("slow"), quick = file("quick");
  Queue queue(*backend_, {.drives = {2, {.piece_bytes = kPiece, .depth = 4}}});
  Buffer memory(kPiece);
  std::deque<Counted> on_slow(20), on_quick(20);
  backend_->hold(slow.fd());
  for (std::size_t i = 0; i < on_slow.size(); ++i) {
    describe(on_slow[i], Op::kWrite, slow, memory.data(), kPiece, i * kPiece);
    queue.submit(on_slow[i]);
  }
  std::size_t left = on_quick.size();
  for (std::size_t i = 0; i < on_quick.size(); ++i) {
    describe(on_quick[i], Op::kWrite, quick, memory.data(), kPiece, i * kPiece);
    on_quick[i].drive = 1;
    queue.submit(on_quick[i]);
  }
  while (left > 0) {
    queue.wait();
    left -= queue.poll();
  }
  for (const Counted& transfer : on_quick) EXPECT_EQ(transfer.completions, 1);
  EXPECT_EQ(backend_->in_flight(), 4u);
  backend_->release();
  queue.drain();
  for (const Counted& transfer : on_slow) EXPECT_EQ(transfer.completions, 1);
}

}  // namespace
}  // namespace sluice::io
