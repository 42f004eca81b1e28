#include "engine/small_engine.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::IsOk;
using testing::AllOf;
using testing::HasSubstr;

class Passes : public sim::EngineTest {
 protected:
  Passes() { seal(); }
  ParameterId a_ = add("a", {300});
  ParameterId b_ = add("b", {300});
};

TEST_F(Passes, AbortedOrDroppedLeaveEveryBitAndCount) {
  train(a_, Values(300, 1));
  const auto before = state(a_);
  {
    Pass dropped = begin();
    give(dropped, a_, Values(300, 1));
  }
  EXPECT_EQ(state(a_), before);
  Pass aborted = begin();
  give(aborted, a_, Values(300, 1));
  EXPECT_THAT(aborted.abort(), IsOk());
  EXPECT_EQ(state(a_), before);
  EXPECT_EQ(train(a_, Values(300, 1)).norm, std::sqrt(300.0));  // nothing of them is left
}

TEST_F(Passes, LeasesOutliveAnAbortAndKeepStepsFromChangingThem) {
  Pass aborted = begin();
  Lease lease = fetch(aborted, {a_});
  EXPECT_THAT(aborted.abort(), IsOk());
  Pass pass = begin();
  give(pass, a_, Values(300, 1));
  EXPECT_THAT(pass.step(), Fails(Code::kFailedPrecondition, HasSubstr("'a'")));
  EXPECT_EQ(bits(lease[a_]), std::vector<std::uint16_t>(300, 0x3f80));
  lease.release();
  EXPECT_THAT(pass.step(), IsOk());
}

TEST_F(Passes, StepWithALeaseOpenIsRefusedByNameAndGoesOn) {
  Pass pass = begin();
  Lease lease = fetch(pass, {a_, b_});
  give(pass, a_, Values(300, 2));
  EXPECT_THAT(pass.step(),
              Fails(Code::kFailedPrecondition, AllOf(HasSubstr("lease 1"), HasSubstr("'a' and 1 more"))));
  lease.release();
  give(pass, b_, Values(300, 2));
  EXPECT_EQ(step(pass).norm, 2 * std::sqrt(600.0));
  EXPECT_EQ(count(a_), 1U);
}

TEST_F(Passes, EndWithALeaseOpenIsRefusedByNameAndGoesOn) {
  Pass pass = look();
  Lease lease = fetch(pass, {b_});
  EXPECT_THAT(pass.end(), Fails(Code::kFailedPrecondition, HasSubstr("'b'")));
  lease.release();
  EXPECT_THAT(pass.end(), IsOk());
}

TEST_F(Passes, EvaluationInsideAStepSeesTheWeightsBeforeIt) {
  Pass pass = begin();
  give(pass, a_, Values(300, 1));
  {
    Pass inner = look();
    const Lease lease = fetch(inner, {a_});
    EXPECT_EQ(bits(lease[a_]), std::vector<std::uint16_t>(300, 0x3f80));
  }
  Pass inner = look();
  EXPECT_THAT(pass.step(), Fails(Code::kFailedPrecondition, HasSubstr("not over")));
  EXPECT_THAT(inner.end(), IsOk());
  EXPECT_EQ(step(pass).step, 1U);
}

TEST_F(Passes, OneAtATimeOfEachKind) {
  Pass training = begin();
  EXPECT_THAT(engine->begin_step(), Fails(Code::kFailedPrecondition, HasSubstr("not over")));
  Pass inner = look();
  EXPECT_THAT(engine->begin_pass("other"), Fails(Code::kFailedPrecondition, HasSubstr("not over")));
  EXPECT_THAT(inner.end(), IsOk());
  EXPECT_THAT(training.abort(), IsOk());
  Pass alone = look();
  EXPECT_THAT(engine->begin_step(), Fails(Code::kFailedPrecondition, HasSubstr("not over")));
}

TEST_F(Passes, OfOneKindRefuseTheOthersCalls) {
  Pass forward = look();
  const Values values(300);
  EXPECT_THAT(forward.add_gradient(a_, Gradient::f32(values.data())),
              Fails(Code::kFailedPrecondition, HasSubstr("forward-only")));
  EXPECT_THAT(forward.norm(), Fails(Code::kFailedPrecondition, HasSubstr("training pass")));
  EXPECT_THAT(forward.step(), Fails(Code::kFailedPrecondition, HasSubstr("training pass")));
  EXPECT_THAT(forward.no_more_gradients(a_), Fails(Code::kFailedPrecondition, HasSubstr("training pass")));
  EXPECT_THAT(forward.end(), IsOk());
  Pass training = begin();
  EXPECT_THAT(training.end(), Fails(Code::kFailedPrecondition, HasSubstr("training pass")));
}

void expect_over(Pass& pass, ParameterId parameter, std::string_view words) {
  const std::vector<float> values(300);
  EXPECT_THAT(pass.fetch(std::vector{parameter}), Fails(Code::kFailedPrecondition, HasSubstr(words)));
  EXPECT_THAT(pass.add_gradient(parameter, Gradient::f32(values.data())),
              Fails(Code::kFailedPrecondition, HasSubstr(words)));
  for (const Status& status : {pass.norm().status(), pass.step().status(), pass.end(), pass.abort(),
                               pass.no_more_gradients(parameter)})
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status.to_string();
  pass.prefetch(std::vector{parameter});
}

TEST_F(Passes, ThatAreOverRefuseEverything) {
  Pass stepped = begin();
  step(stepped);
  expect_over(stepped, a_, "pass is over");
  Pass next = begin();
  expect_over(stepped, a_, "pass is over");
  EXPECT_THAT(next.abort(), IsOk());
  expect_over(next, a_, "pass is over");
}

TEST_F(Passes, MovedFromAreEmptyAndTheTargetGoesOn) {
  Pass pass = begin();
  Pass moved = std::move(pass);
  expect_over(pass, a_, "empty");  // NOLINT: what a moved-from pass says is the point
  give(moved, a_, Values(300, 1));
  EXPECT_EQ(step(moved).step, 1U);
}

TEST_F(Passes, MovingOverAnUnfinishedOneAbortsIt) {
  Pass pass = begin();
  give(pass, a_, Values(300, 1));
  pass = Pass();
  EXPECT_EQ(train(a_, Values(300, 2)).norm, 2 * std::sqrt(300.0));
}

TEST_F(Passes, AfterCloseAreOver) {
  Pass pass = begin();
  const Lease lease = fetch(pass, {a_});
  give(pass, a_, Values(300, 1));
  EXPECT_THAT(engine->close(), IsOk());
  EXPECT_THAT(pass.fetch(std::vector{a_}), Fails(Code::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(pass.step(), Fails(Code::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_EQ(bits(lease[a_]), std::vector<std::uint16_t>(300, 0x3f80));
}

TEST_F(Passes, CallsInAWrongOrderAreRefused) {
  float value = 0;
  EXPECT_THAT(engine->seal(), Fails(Code::kFailedPrecondition, HasSubstr("sealed already")));
  EXPECT_THAT(engine->add_group({}), Fails(Code::kFailedPrecondition, HasSubstr("sealed already")));
  EXPECT_THAT(engine->add_parameter({.name = "c", .shape = {}, .group = {0}, .initial = Zeros{}}),
              Fails(Code::kFailedPrecondition, HasSubstr("sealed already")));
  EXPECT_THAT(engine->add_alias("c", a_), Fails(Code::kFailedPrecondition, HasSubstr("sealed already")));
  EXPECT_THAT(engine->close(), IsOk());
  EXPECT_THAT(engine->close(), IsOk());
  EXPECT_THAT(engine->begin_step(), Fails(Code::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(engine->update_group({0}, AdamW{}), Fails(Code::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(engine->read(a_, View::kMaster, {0, 1}, &value, DType::kF32),
              Fails(Code::kFailedPrecondition, HasSubstr("closed")));
  make();
  EXPECT_THAT(engine->begin_step(), Fails(Code::kFailedPrecondition, HasSubstr("not sealed")));
  EXPECT_THAT(engine->begin_pass("x"), Fails(Code::kFailedPrecondition, HasSubstr("not sealed")));
  EXPECT_THAT(engine->write(a_, View::kMaster, {0, 1}, &value, DType::kF32),
              Fails(Code::kFailedPrecondition, HasSubstr("not sealed")));
  EXPECT_EQ(engine->stats().steps, 0U);
  EXPECT_THAT(engine->close(), IsOk());
  EXPECT_THAT(engine->seal(), Fails(Code::kFailedPrecondition, HasSubstr("closed")));
}

}  // namespace
}  // namespace sluice
