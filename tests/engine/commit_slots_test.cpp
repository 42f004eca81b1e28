#include <fmt/format.h>

#include <cerrno>

#include "engine/committing_engine.hpp"

namespace sluice {
namespace {

using sim::CommitTest;
using sim::dim;
using sim::Fails;
using sim::IsOk;
using sim::kShowsGradient;
using testing::AllOf;
using testing::HasSubstr;

/// A parameter whose records live on the drive, beside one in memory that keeps commits busy.
class SlotsTest : public CommitTest {
 protected:
  static constexpr std::uint64_t kBusy = 40 * kChunk;
  static constexpr std::uint64_t kStoredChunks = 2;
  static constexpr std::uint64_t kStored = kStoredChunks * kChunk;

  /// What lies first in the layout is in memory first.
  void open_mixed() {
    open_with(kUnlimited);
    const std::uint64_t all_bytes = report.host_bytes;
    ASSERT_THAT(engine->close(), IsOk());
    open_with(all_bytes - 1);
    ASSERT_GT(report.resident_chunks, 20U);
    ASSERT_LE(report.resident_chunks, 40U);
  }
  void reopen_mixed() {
    ASSERT_THAT(engine->close(), IsOk());
    open_with(options.host_budget_bytes);
  }
  void open_with(std::uint64_t host_budget_bytes) {
    options.host_budget_bytes = host_budget_bytes;
    make();
    busy = add("busy", {dim(kBusy)}, {.name = "busy", .optimizer = kShowsGradient});
    stored = add("stored", {dim(kStored)}, {.name = "stored", .policy = policy, .optimizer = kShowsGradient});
    report = seal();
  }
  void step_busy() { train(busy, Values(kBusy, 0.5f)); }
  Status try_to_step(float gradient) {
    Pass pass = begin({.micro_batches = 0});  // nothing is written before step()
    give(pass, stored, Values(kStored, gradient));
    return pass.step().status();
  }
  Status try_to_write(float value) {
    const Values values(kStored, value);
    return engine->write(stored, View::kMaster, {0, kStored}, values.data(), DType::kF32);
  }
  double waited() const { return engine->stats().commit_wait_seconds; }
  /// Commits once, so that one slot is taken, and begins a commit that takes another.
  CommitTicket begin_a_commit_that_takes_all_slots() {
    step_busy();
    commit("the one before");
    EXPECT_THAT(try_to_step(0.5f), IsOk());
    step_busy();
    return begin_commit();
  }

  ParameterId stored, busy;
  Policy policy = Policy::kFp32;  // of `stored`: parameters of one policy share their slots
};

enum class Waits { kStep, kWrite };
class WhoWaits : public SlotsTest, public testing::WithParamInterface<std::tuple<Undo, Waits>> {
 protected:
  WhoWaits() { options.undo = std::get<Undo>(GetParam()); }
  Status change(float value) {
    return std::get<Waits>(GetParam()) == Waits::kStep ? try_to_step(value) : try_to_write(value);
  }
  /// With undo one change fits above the commit in flight.
  std::uint64_t changes_that_fit() const { return options.undo == Undo::kOn ? 1 : 0; }
};

TEST_P(WhoWaits, ForASlotGoesOnWhenTheCommitIsDropped) {
  open_mixed();
  const CommitTicket ticket = begin_a_commit_that_takes_all_slots();
  // The last of its writes, behind those of the changes that need not wait for it.
  house.backend->faults().add({.op = io::Op::kWrite,
                               .error = ENOSPC,
                               .skip = report.resident_chunks - 1 + changes_that_fit() * kStoredChunks,
                               .count = 1});
  for (std::uint64_t i = 0; i < changes_that_fit(); ++i) EXPECT_THAT(change(0.25f), IsOk());
  EXPECT_FALSE(ticket.done());
  const double before = waited();
  EXPECT_THAT(change(0.75f), IsOk());
  EXPECT_TRUE(ticket.done());
  EXPECT_GT(waited(), before);
  EXPECT_THAT(ticket.wait(), Fails(Code::kNoSpace, HasSubstr("commit 2")));
  const auto now = state(stored);
  commit("the next");
  reopen_mixed();
  EXPECT_EQ(report.recovered->user_bytes, bytes("the next"));
  EXPECT_EQ(state(stored), now);
}

TEST_P(WhoWaits, ForASlotFailsWhenTheCommitBreaks) {
  open_mixed();
  step_busy();
  EXPECT_THAT(try_to_step(0.125f), IsOk());
  const auto committed = state(stored);
  const CommitTicket ticket = begin_a_commit_that_takes_all_slots();
  house.backend->faults().add({.op = io::Op::kFlush, .error = EIO, .count = 1});
  for (std::uint64_t i = 0; i < changes_that_fit(); ++i) EXPECT_THAT(change(0.25f), IsOk());
  EXPECT_FALSE(ticket.done());
  EXPECT_THAT(change(0.75f), Fails(Code::kIoError, HasSubstr("flush for a commit")));
  EXPECT_TRUE(ticket.done());
  EXPECT_THAT(engine->begin_step(), Fails(Code::kIoError, HasSubstr("commit 2")));
  EXPECT_THAT(engine->close(), IsOk());  // it was told
  open_with(options.host_budget_bytes);
  EXPECT_EQ(report.recovered->user_bytes, bytes("the one before"));
  EXPECT_EQ(state(stored), committed);
}
INSTANTIATE_TEST_SUITE_P(Cases, WhoWaits,
                         testing::Combine(testing::Values(Undo::kOn, Undo::kOff),
                                          testing::Values(Waits::kStep, Waits::kWrite)));

/// Commits that are dropped, again and again.
class Dropped : public CommitTest, public testing::WithParamInterface<std::tuple<Undo, std::uint32_t>> {
 protected:
  Dropped() {
    options.undo = std::get<Undo>(GetParam());
    options.keep_commits = std::get<std::uint32_t>(GetParam());
  }
  void drop_a_commit() {
    house.backend->faults().add({.op = io::Op::kWrite, .error = ENOSPC, .count = 1});
    EXPECT_THAT(begin_commit().wait(), Fails(Code::kNoSpace, HasSubstr("commit")));
  }
};

TEST_P(Dropped, CommitsTakeNoSlotWithThem) {
  open();
  ASSERT_GT(report.resident_chunks, 0U);
  for (int i = 0; i < 6; ++i) {
    step_by(0.5f);
    drop_a_commit();
    step_by(0.25f);
    if (i % 2 == 1) commit(std::to_string(i));
  }
  step_by(0.125f);
  drop_a_commit();
  const auto now = state(it);
  commit("last");
  step_by(1);
  reopen();
  EXPECT_EQ(report.recovered->user_bytes, bytes("last"));
  EXPECT_EQ(state(it), now);
}

TEST_P(Dropped, CommitsLeaveWrittenFrozenValuesForTheNext) {
  open();
  commit();
  Values values(100, 7);
  for (int i = 0; i < 4; ++i) {
    values.assign(100, static_cast<float>(i));
    ASSERT_THAT(engine->write(frozen, View::kWeight, {0, 100}, values.data(), DType::kF32), IsOk());
    step_by(0.5f);
    drop_a_commit();
    EXPECT_EQ(read(frozen, View::kWeight), values);
  }
  const std::uint64_t reserved = engine->stats().nvme_reserved_bytes;
  commit();
  // One slot beside the committed one, whatever was dropped in between.
  EXPECT_LE(engine->stats().nvme_reserved_bytes, reserved + 4096);
  reopen();
  EXPECT_EQ(read(frozen, View::kWeight), values);
}

INSTANTIATE_TEST_SUITE_P(Cases, Dropped,
                         testing::Combine(testing::Values(Undo::kOn, Undo::kOff), testing::Values(1U, 2U)));

TEST_F(SlotsTest, ThatACommitNeedsAreNotTakenByStepsAboveIt) {
  policy = Policy::kBf16Split;
  for (const Undo undo : {Undo::kOn, Undo::kOff}) {
    options.undo = undo;
    open_mixed();
    for (int i = 0; i < 3; ++i) {
      step_busy();
      EXPECT_THAT(try_to_step(0.5f), IsOk());
      const CommitTicket ticket = begin_commit();
      for (int above = 0; above < 3; ++above) EXPECT_THAT(try_to_step(0.25f), IsOk());
      EXPECT_THAT(ticket.wait(), IsOk());
    }
    clear_drive();
  }
}

TEST_F(SlotsTest, OfTheDriveAreFreeAgainAfterEachDroppedCommit) {
  for (const Undo undo : {Undo::kOn, Undo::kOff}) {
    options.undo = undo;
    open_mixed();
    commit();
    for (int i = 0; i < 5; ++i) {
      step_busy();
      EXPECT_THAT(try_to_step(0.5f), IsOk());
      house.backend->faults().add({.op = io::Op::kWrite, .error = ENOSPC, .count = 1});
      EXPECT_THAT(begin_commit().wait(), Fails(Code::kNoSpace, HasSubstr("commit")));
      EXPECT_THAT(try_to_write(0.25f), IsOk());
    }
    EXPECT_THAT(try_to_step(0.75f), IsOk());
    const auto now = state(stored);
    commit();
    EXPECT_THAT(try_to_step(1), IsOk());
    reopen_mixed();
    EXPECT_EQ(state(stored), now) << (undo == Undo::kOn ? "undo on" : "undo off");
    clear_drive();
  }
}

}  // namespace
}  // namespace sluice
