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
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(CommitTest, BringsBackEveryPlaneCountAndUserByte) {
  open();
  EXPECT_FALSE(report.recovered.has_value());
  step_by(0.5f);
  step_by(-0.25f);
  commit("where the reader stood");
  const auto expected = state(it);
  reopen();
  ASSERT_TRUE(report.recovered.has_value());
  EXPECT_EQ(report.recovered->commit, 1U);
  EXPECT_EQ(report.recovered->step, 2U);
  EXPECT_EQ(report.recovered->user_bytes, bytes("where the reader stood"));
  EXPECT_THAT(report.recovered->differences, IsEmpty());
  EXPECT_FALSE(report.recovered->rewritten);
  EXPECT_EQ(state(it), expected);
  EXPECT_EQ(read(frozen, View::kWeight), Values(100, 3));
  EXPECT_EQ(step_by(1).step, 3U);
}

TEST_F(CommitTest, OfStateOnTheDriveWritesNoneOfIt) {
  open_out_of_core();
  step_by(0.5f);
  commit();
  step_by(0.5f);
  commit();
  const Stats stats = engine->stats();
  EXPECT_EQ(stats.commit_state_bytes_written, 0U);
  EXPECT_EQ(stats.commits, 2U);
  EXPECT_GT(stats.commit_record_bytes_written, 0U);
  const auto expected = state(it);
  reopen();
  EXPECT_EQ(state(it), expected);
}

TEST_F(CommitTest, OfStateInMemoryWritesWhatChangedSinceTheLastOne) {
  open();
  step_by(0.5f);
  commit();
  const std::uint64_t all = engine->stats().commit_state_bytes_written;
  EXPECT_GT(all, kElements * 12);
  commit();
  EXPECT_EQ(engine->stats().commit_state_bytes_written, all);
  step_by(0.5f);
  commit();
  EXPECT_GT(engine->stats().commit_state_bytes_written, all + kElements * 12 - 1);
  EXPECT_LT(engine->stats().commit_state_bytes_written, 2 * all);  // the frozen chunk stays
}

TEST_F(CommitTest, StepsAfterItAreForgottenWithTheEngine) {
  for (const std::uint64_t budget : {kUnlimited, std::uint64_t{1}}) {
    if (budget == 1)
      open_out_of_core();
    else
      open();
    step_by(0.5f);
    commit("one");
    const auto expected = state(it);
    step_by(0.75f);
    step_by(0.75f);
    EXPECT_EQ(engine->stats().steps_since_commit, 2U);
    reopen();
    EXPECT_EQ(state(it), expected);
    EXPECT_EQ(report.recovered->user_bytes, bytes("one"));
  }
}

TEST_F(CommitTest, StepsGoOnAboveTheOneInFlightAndItHoldsWhatItWasAskedFor) {
  for (const Undo undo : {Undo::kOn, Undo::kOff}) {
    options.undo = undo;
    open_out_of_core();
    step_by(0.5f);
    const auto expected = state(it);
    const CommitTicket ticket = begin_commit();
    step_by(0.75f);
    step_by(0.25f);
    EXPECT_THAT(ticket.wait(), IsOk());
    EXPECT_TRUE(ticket.done());
    reopen();
    EXPECT_EQ(state(it), expected) << (undo == Undo::kOn ? "undo on" : "undo off");
    clear_drive();
  }
}

TEST_F(CommitTest, RecordsInMemoryAreNotSteppedBeforeTheyAreWritten) {
  open();
  step_by(0.5f);
  const auto expected = state(it);
  const CommitTicket ticket = begin_commit();
  EXPECT_FALSE(ticket.done());
  step_by(0.75f);
  EXPECT_THAT(ticket.wait(), IsOk());
  EXPECT_GT(engine->stats().commit_wait_seconds, 0);
  reopen();
  EXPECT_EQ(state(it), expected);
}

TEST_F(CommitTest, ASecondOneWaitsForTheFirst) {
  open();
  step_by(0.5f);
  const CommitTicket first = begin_commit();
  step_by(0.5f);
  const CommitTicket second = begin_commit();
  EXPECT_TRUE(first.done());
  EXPECT_EQ(first.number(), 1U);
  EXPECT_EQ(second.number(), 2U);
  const auto expected = state(it);
  EXPECT_THAT(engine->close(), IsOk());  // waits for it
  EXPECT_TRUE(second.done());
  EXPECT_THAT(second.wait(), IsOk());
  open();
  EXPECT_EQ(report.recovered->commit, 2U);
  EXPECT_EQ(state(it), expected);
}

TEST_F(CommitTest, ThatCannotWriteTheStateIsDroppedAndReportedOnce) {
  open();
  step_by(0.5f);
  commit();
  const auto committed = state(it);
  step_by(0.5f);
  house.backend->faults().add({.op = io::Op::kWrite, .error = ENOSPC, .count = 1});
  EXPECT_THAT(begin_commit().wait(), Fails(Code::kNoSpace, HasSubstr("commit 2")));
  step_by(0.5f);  // the ticket has told of it, and nothing else broke
  house.backend->faults().add({.op = io::Op::kWrite, .error = EIO, .count = 1});
  (void)begin_commit();
  while (engine->stats().failed_commits < 2)
    house.world.step(), (void)engine->update_group({0}, kShowsGradient);
  EXPECT_THAT(engine->begin_pass("look"), Fails(Code::kIoError, HasSubstr("commit 3")));
  EXPECT_THAT(look().end(), IsOk());
  EXPECT_EQ(engine->stats().commits, 1U);
  const auto now = state(it);
  commit();
  EXPECT_NE(now, committed);
  reopen();
  EXPECT_EQ(report.recovered->commit, 4U);
  EXPECT_EQ(state(it), now);
}

TEST_F(CommitTest, ThatFailsUnheardIsToldByClose) {
  open();
  step_by(0.5f);
  commit();
  const auto committed = state(it);
  step_by(0.5f);
  house.backend->faults().add({.op = io::Op::kWrite, .error = ENOSPC, .count = 1});
  (void)begin_commit();
  EXPECT_THAT(engine->close(), Fails(Code::kNoSpace, HasSubstr("commit 2")));
  open();
  EXPECT_EQ(state(it), committed);
}

TEST_F(CommitTest, ThatCannotFlushOrWriteItsRecordBreaksTheEngineAndTheOneBeforeStays) {
  struct Case {
    io::Op op;
    std::uint64_t skip;
  };
  for (const Case& broken : {Case{io::Op::kFlush, 0}, Case{io::Op::kWrite, 0}, Case{io::Op::kFlush, 1}}) {
    open_out_of_core();
    step_by(0.5f);
    commit("the one before");
    const auto committed = state(it);
    step_by(0.5f);
    house.backend->faults().add({.op = broken.op, .error = EIO, .skip = broken.skip, .count = 1});
    const CommitTicket ticket = begin_commit();
    EXPECT_THAT(ticket.wait(), Fails(Code::kIoError, HasSubstr("commit 2")));
    EXPECT_THAT(engine->begin_step(), Fails(Code::kIoError, HasSubstr("commit 2")));
    EXPECT_THAT(engine->close(), IsOk());  // it was told
    open();
    ASSERT_TRUE(report.recovered.has_value());
    // Its record may have reached the drive all the same: then the state is whole too.
    if (report.recovered->user_bytes == bytes("the one before")) {
      EXPECT_EQ(state(it), committed);
    }
    clear_drive();
  }
}

TEST_F(CommitTest, KeepsAsManyAsAskedAndGoesOnFromAnyOfThem) {
  options.keep_commits = 3;
  std::vector<std::vector<Values>> states;
  open();
  for (int i = 0; i < 5; ++i) {
    step_by(0.1f * static_cast<float>(i + 1));
    states.push_back(state(it));
    commit(std::to_string(i));
  }
  ASSERT_THAT(engine->close(), IsOk());
  for (const std::uint64_t lost : {2U, 6U}) {
    options.recover_commit = lost;
    make();
    (void)add("it", {dim(kElements)}, {.name = "trained", .optimizer = kShowsGradient});
    (void)add("frozen", {100}, {.name = "frozen", .policy = Policy::kFrozen});
    EXPECT_THAT(engine->seal(),
                Fails(Code::kNotFound, AllOf(HasSubstr("3"), HasSubstr("4"), HasSubstr("5"))));
  }
  options.recover_commit = 4;
  open();
  EXPECT_EQ(state(it), states[3]);
  EXPECT_EQ(report.recovered->user_bytes, bytes("3"));
  step_by(0.9f);
  const auto other = state(it);
  commit("other");
  ASSERT_THAT(engine->close(), IsOk());
  options.recover_commit = 3;
  open();
  EXPECT_EQ(state(it), states[2]);
  ASSERT_THAT(engine->close(), IsOk());
  // Having gone on from 3, what came after it is gone.
  options.recover_commit = 0;
  open();
  EXPECT_EQ(report.recovered->commit, 3U);
  EXPECT_NE(state(it), other);
}

TEST_F(CommitTest, WritesToAFrozenParameterLeaveTheCommittedValuesAlone) {
  open_out_of_core();
  commit();
  const std::uint64_t reserved = engine->stats().nvme_reserved_bytes;
  const Values changed(100, 7);
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(engine->write(frozen, View::kWeight, {0, 100}, changed.data(), DType::kF32), IsOk());
    EXPECT_EQ(read(frozen, View::kWeight), changed);
  }
  reopen();
  EXPECT_EQ(read(frozen, View::kWeight), Values(100, 3));
  ASSERT_THAT(engine->write(frozen, View::kWeight, {0, 100}, changed.data(), DType::kF32), IsOk());
  commit();
  reopen();
  EXPECT_EQ(read(frozen, View::kWeight), changed);
  options.nvme_budget_bytes = reserved;
  clear_drive();
  open();
  commit();
  EXPECT_THAT(engine->write(frozen, View::kWeight, {0, 100}, changed.data(), DType::kF32),
              Fails(Code::kResourceExhausted, HasSubstr("nvme_budget_bytes")));
  EXPECT_EQ(read(frozen, View::kWeight), Values(100, 3));
}

TEST_F(CommitTest, WritesAreCommittedWhereverTheStateLives) {
  for (const std::uint64_t budget : {kUnlimited, std::uint64_t{1}}) {
    if (budget == 1)
      open_out_of_core();
    else
      open();
    commit();
    const Values values(10, 0.125f);
    ASSERT_THAT(engine->write(it, View::kMaster, {kChunk - 5, 10}, values.data(), DType::kF32), IsOk());
    const auto expected = state(it);
    commit();
    reopen();
    EXPECT_EQ(state(it), expected);
  }
}

TEST_F(CommitTest, RefusesWhatItCannotHoldAndSaysWhy) {
  open();
  EXPECT_THAT(engine->commit(std::vector<std::byte>(1001)),
              Fails(Code::kInvalidArgument, AllOf(HasSubstr("1001"), HasSubstr("max_user_bytes = 1000"))));
  EXPECT_THAT(engine->commit(std::vector<std::byte>(1000), CommitMode::kWait), IsOk());
  {
    Pass pass = begin();
    EXPECT_THAT(engine->commit(), Fails(Code::kFailedPrecondition, HasSubstr("between passes")));
  }
  ASSERT_THAT(engine->close(), IsOk());
  EXPECT_THAT(engine->commit(), Fails(Code::kFailedPrecondition, HasSubstr("closed")));
  options.keep_commits = 0;
  options.directories.clear();
  open();
  EXPECT_THAT(engine->commit(), Fails(Code::kFailedPrecondition, HasSubstr("keep_commits = 0")));
}

TEST_F(CommitTest, AnEmptyTicketHasNothingToWaitFor) {
  EXPECT_THAT(CommitTicket().wait(), Fails(Code::kFailedPrecondition, HasSubstr("empty")));
  EXPECT_TRUE(CommitTicket().done());
}

TEST_F(CommitTest, ATicketOutlivesItsEngine) {
  open();
  const CommitTicket ticket = begin_commit();
  engine.reset();
  EXPECT_THAT(ticket.wait(), IsOk());
  EXPECT_TRUE(ticket.done());
}

TEST_F(CommitTest, AStoreThatWasNeverCommittedIsGoneWithItsEngine) {
  open();
  step_by(0.5f);
  ASSERT_THAT(engine->close(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(options.directories.front()));
  open();
  EXPECT_FALSE(report.recovered.has_value());
}

TEST_F(CommitTest, AStoreWithCommitsIsNeverReplacedByOneThatDoesNotGoOn) {
  open();
  step_by(0.5f);
  commit();
  const auto expected = state(it);
  ASSERT_THAT(engine->close(), IsOk());
  const auto refused = [&](std::uint32_t keep_commits, OnExisting existing,
                           std::uint64_t host_budget_bytes) {
    EngineOptions asked = options;
    asked.keep_commits = keep_commits;
    asked.existing = existing;
    asked.host_budget_bytes = host_budget_bytes;
    std::swap(asked, options);
    make();
    (void)add("it", {dim(kElements)}, {.name = "trained", .optimizer = kShowsGradient});
    (void)add("frozen", {100}, {.name = "frozen", .policy = Policy::kFrozen});
    EXPECT_THAT(engine->seal(), Fails(Code::kAlreadyExists, HasSubstr(options.directories.front())));
    engine.reset();
    std::swap(asked, options);
  };
  // With state on the drive, and with all of it in memory.
  for (const std::uint64_t host_budget_bytes : {report.least_host_bytes, kUnlimited}) {
    refused(0, OnExisting::kRecover, host_budget_bytes);
    refused(0, OnExisting::kReplaceScratch, host_budget_bytes);
    refused(1, OnExisting::kReplaceScratch, host_budget_bytes);
    refused(1, OnExisting::kRefuse, host_budget_bytes);
  }
  open();
  EXPECT_EQ(state(it), expected);
}

TEST_F(CommitTest, NumbersThatDifferAreListedAndTheTrainersAreInUse) {
  options.seed = 7;
  open();
  step_by(0.5f);
  commit();
  ASSERT_THAT(engine->close(), IsOk());
  options.seed = 8;
  make();
  AdamW other = kShowsGradient;
  other.lr = 0.25;
  it = add("it", {dim(kElements)}, {.name = "trained", .optimizer = other});
  frozen = add("frozen", {100}, {.name = "frozen", .policy = Policy::kFrozen});
  report = seal();
  ASSERT_TRUE(report.recovered.has_value());
  EXPECT_FALSE(report.recovered->rewritten);
  EXPECT_THAT(report.recovered->differences,
              testing::UnorderedElementsAre(AllOf(HasSubstr("seed"), HasSubstr("8"), HasSubstr("7")),
                                            AllOf(HasSubstr("lr"), HasSubstr("0.25"), HasSubstr("0.01"))));
  ASSERT_EQ(report.recovered->groups.size(), 2U);
  EXPECT_EQ(std::get<AdamW>(report.recovered->groups[0].optimizer).lr, kShowsGradient.lr);
}

TEST_F(CommitTest, WhatACrashWouldCostIsSaid) {
  open();
  EXPECT_THAT(engine->stats().crash_cost, HasSubstr("since the last commit"));
  options.undo = Undo::kOff;
  open();
  EXPECT_THAT(engine->stats().crash_cost, HasSubstr("a failed step ends the engine"));
  options.keep_commits = 0;
  open();
  EXPECT_THAT(engine->stats().crash_cost, HasSubstr("scratch"));
}

}  // namespace
}  // namespace sluice
