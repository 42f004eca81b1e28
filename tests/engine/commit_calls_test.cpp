#include <cerrno>
#include <deque>

#include "engine/committing_engine.hpp"
#include "support/after_crash.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

using sim::CommitTest;
using sim::dim;
using sim::Fails;
using sim::IsOk;
using sim::kShowsGradient;
using testing::HasSubstr;
using testing::IsEmpty;

/// Calls that meet a commit.
class CommitCallsTest : public CommitTest {
 protected:
  CommitTicket begin_commit_that_breaks() {
    house.backend->faults().add({.op = io::Op::kFlush, .error = EIO, .count = 1});
    return begin_commit();
  }
  /// Turns the engine until a commit has failed, by calls that tell of none.
  void let_it_fail() {
    while (engine->stats().failed_commits == 0)
      house.world.step(), (void)engine->update_group({0}, kShowsGradient);
  }
};

TEST_F(CommitCallsTest, ABrokenCommitIsToldByCloseWhenNobodyElseHeardOfIt) {
  open();
  step_by(0.5f);
  commit("before");
  const auto committed = state(it);
  step_by(0.5f);
  (void)begin_commit_that_breaks();
  EXPECT_THAT(engine->close(), Fails(Code::kIoError, HasSubstr("commit 2")));
  EXPECT_THAT(engine->close(), IsOk());
  open();
  EXPECT_EQ(state(it), committed);
}

TEST_F(CommitCallsTest, APassThatIsDroppedHearsNothing) {
  open();
  Pass pass = begin();
  give(pass, it, Values(kElements, 0.5f));
  step(pass);
  (void)begin_commit_that_breaks();
  let_it_fail();
  pass = Pass();
  EXPECT_THAT(engine->close(), Fails(Code::kIoError, HasSubstr("commit 1")));
}

TEST_F(CommitCallsTest, ABrokenCommitIsToldOnceAndThenTheEngineSaysWhyItIsBroken) {
  open();
  Pass pass = begin();
  give(pass, it, Values(kElements, 0.5f));
  step(pass);
  const CommitTicket ticket = begin_commit_that_breaks();
  let_it_fail();
  EXPECT_THAT(engine->begin_step(), Fails(Code::kIoError, HasSubstr("commit 1")));
  EXPECT_THAT(engine->commit(), Fails(Code::kIoError, HasSubstr("commit 1")));
  EXPECT_THAT(pass.step(), Fails(Code::kIoError, HasSubstr("commit 1")));
  EXPECT_THAT(ticket.wait(), Fails(Code::kIoError, HasSubstr("commit 1")));
  EXPECT_THAT(engine->close(), IsOk());
}

TEST_F(CommitCallsTest, ALeaseMayBeOpen) {
  open_out_of_core();
  step_by(0.5f);
  Pass pass = look();
  const Lease held = fetch(pass, {it});
  const auto before = bits(held[it]);
  EXPECT_THAT(engine->commit(), Fails(Code::kFailedPrecondition, HasSubstr("between passes")));
  EXPECT_THAT(pass.abort(), IsOk());
  commit("with a lease");
  EXPECT_EQ(bits(held[it]), before);
  EXPECT_EQ(engine->stats().commits, 1U);
}

TEST_F(CommitCallsTest, NumbersThatAreUpdatedAfterItAreNotInIt) {
  open();
  step_by(0.5f);
  const CommitTicket ticket = begin_commit();
  AdamW later = kShowsGradient;
  later.lr = 0.75;
  ASSERT_THAT(engine->update_group({0}, later), IsOk());
  EXPECT_THAT(ticket.wait(), IsOk());
  reopen();
  EXPECT_THAT(report.recovered->differences, IsEmpty());
  EXPECT_EQ(std::get<AdamW>(report.recovered->groups[0].optimizer).lr, kShowsGradient.lr);
  ASSERT_THAT(engine->update_group({0}, later), IsOk());
  commit();
  reopen();
  EXPECT_EQ(std::get<AdamW>(report.recovered->groups[0].optimizer).lr, 0.75);
}

TEST_F(CommitCallsTest, AFrozenParameterInMemoryWithoutRoomForItsNewValuesDropsTheCommitByItsNumber) {
  open();
  const std::uint64_t reserved = engine->stats().nvme_reserved_bytes;
  options.nvme_budget_bytes = reserved;
  reopen();
  commit();
  const Values changed(100, 7);
  ASSERT_THAT(engine->write(frozen, View::kWeight, {0, 100}, changed.data(), DType::kF32), IsOk());
  EXPECT_THAT(
      engine->commit({}, CommitMode::kWait),
      Fails(Code::kResourceExhausted, testing::AllOf(HasSubstr("commit 2"), HasSubstr("nvme_budget_bytes"))));
  step_by(0.5f);
  EXPECT_EQ(read(frozen, View::kWeight), changed);
  reopen();
  EXPECT_EQ(read(frozen, View::kWeight), Values(100, 3));
}

/// The drive forgets or tears what a crash lets it, with frozen values written and perhaps committed.
class FrozenGrowth : public CommitTest, public testing::WithParamInterface<sim::Crash> {
 protected:
  void write(float value) {
    const Values values(100, value);
    ASSERT_THAT(engine->write(frozen, View::kWeight, {0, 100}, values.data(), DType::kF32), IsOk());
  }
  void crash_and_reopen() {
    house.backend->crash(GetParam());
    sim::copy_after_crash(options.directories.front(), copies_.emplace_back().path());
    engine.reset();
    options.directories = {copies_.back().path()};
    open();
  }

 private:
  std::deque<sim::TemporaryDirectory> copies_;
};

TEST_P(FrozenGrowth, SurvivesACrashOnceItIsCommitted) {
  open_out_of_core();
  commit();
  float expected = 3;
  for (int i = 0; i < 4; ++i) {
    write(10.0f + static_cast<float>(i));
    crash_and_reopen();  // before a commit
    EXPECT_EQ(read(frozen, View::kWeight), Values(100, expected));
    write(20.0f + static_cast<float>(i));
    expected = 20.0f + static_cast<float>(i);
    commit();
    write(30.0f);
    crash_and_reopen();
    EXPECT_EQ(read(frozen, View::kWeight), Values(100, expected));
    const auto before = state(it);
    step_by(0.5f);
    EXPECT_NE(state(it), before);
  }
}
INSTANTIATE_TEST_SUITE_P(Crashes, FrozenGrowth,
                         testing::Values(sim::Crash::kProcessKilled, sim::Crash::kPowerLost));

}  // namespace
}  // namespace sluice
