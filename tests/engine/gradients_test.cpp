#include <cmath>
#include <limits>

#include "engine/small_engine.hpp"
#include "kernels/convert.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::Fails;
using sim::IsOk;
using sim::kShowsGradient;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

/// One parameter over two chunks and one beside it; kShowsGradient shows what the update took.
class GradientsTest : public sim::EngineTest {
 protected:
  static constexpr std::uint64_t kMany = kChunk + 1000;

  void open(GradientStorage storage = GradientStorage::kFp32, AdamW rule = kShowsGradient) {
    make();
    a_ = add("a", {dim(kMany)}, {.optimizer = rule, .gradient = storage});
    b_ = add("b", {3}, {.optimizer = rule, .gradient = storage});
    seal();
  }
  Values used(ParameterId parameter) const { return read(parameter, View::kMoment1); }
  static Values many(float value) { return Values(kMany, value); }

  ParameterId a_, b_;
};

TEST_F(GradientsTest, ContributionsAddInFp32InTheOrderOfCalls) {
  open();
  Pass pass = begin({.micro_batches = 3});
  give(pass, b_, {1e8F, 1, 1e8F});
  give(pass, b_, {1, 1e8F, -1e8F});
  give(pass, b_, {-1e8F, -1e8F, 1});
  step(pass);
  EXPECT_THAT(used(b_), ElementsAre(1e8F + 1 - 1e8F, 1 + 1e8F - 1e8F, 1));
}

TEST_F(GradientsTest, PartsAddInFp32AndCountOnce) {
  open();
  Pass pass = begin();
  give(pass, a_, many(1), More::kYes);
  give(pass, a_, many(2), More::kYes);
  give(pass, a_, many(4));
  EXPECT_EQ(step(pass).norm, 7 * std::sqrt(static_cast<double>(kMany)));
  EXPECT_THAT(used(a_), Each(7));
  EXPECT_EQ(count(a_), 1U);
}

TEST_F(GradientsTest, StepWithAPartOpenIsRefusedByNameAndGoesOn) {
  open();
  Pass pass = begin();
  give(pass, b_, {1, 1, 1}, More::kYes);
  EXPECT_THAT(pass.step(), Fails(Code::kFailedPrecondition, AllOf(HasSubstr("'b'"), HasSubstr("go on"))));
  EXPECT_THAT(pass.no_more_gradients(b_), Fails(Code::kFailedPrecondition, HasSubstr("go on")));
  give(pass, b_, {1, 1, 1});
  step(pass);
  EXPECT_THAT(used(b_), Each(2));
}

TEST_F(GradientsTest, AfterNoMoreGradientsAContributionIsRefused) {
  open();
  Pass pass = begin();
  give(pass, b_, {1, 1, 1});
  EXPECT_THAT(pass.no_more_gradients(b_), IsOk());
  const Values more(3);
  EXPECT_THAT(pass.add_gradient(b_, Gradient::f32(more.data())),
              Fails(Code::kFailedPrecondition, AllOf(HasSubstr("'b'"), HasSubstr("no_more_gradients"))));
  step(pass);
  EXPECT_THAT(used(b_), Each(1));
  train(b_, {2, 2, 2});  // said of that step alone
}

TEST_F(GradientsTest, NoneCountsAsZeros) {
  open();
  Pass pass = begin();
  EXPECT_THAT(pass.add_gradient(a_, Gradient::none()), IsOk());
  EXPECT_EQ(step(pass).norm, 0);
  EXPECT_THAT(used(a_), Each(0));
  EXPECT_EQ(count(a_), 1U);
}

TEST_F(GradientsTest, WithoutOneAParameterIsUntouchedAndSoIsItsCount) {
  open(GradientStorage::kFp32, AdamW{.lr = 1e-2, .weight_decay = 0.5});
  train(a_, many(1));
  const auto before = state(a_);
  train(b_, {1, 2, 3});  // in the same chunk as the end of a
  EXPECT_EQ(state(a_), before);
  EXPECT_EQ(count(b_), 1U);
}

TEST_F(GradientsTest, EveryDTypeIsConvertedExactly) {
  open();
  const Values values{1.5F, -0.25F, 100};
  std::vector<std::uint16_t> bf16(3), f16(3);
  kernels::f32_to_bf16(bf16.data(), values.data(), 3);
  kernels::f32_to_f16(f16.data(), values.data(), 3);
  Pass pass = begin();
  give(pass, b_, values);
  EXPECT_THAT(pass.add_gradient(b_, Gradient::bf16(bf16.data())), IsOk());
  EXPECT_THAT(pass.add_gradient(b_, Gradient::f16(f16.data())), IsOk());
  step(pass);
  EXPECT_THAT(used(b_), ElementsAre(4.5F, -0.75F, 300));
}

TEST_F(GradientsTest, OfAnotherDTypeAreRefused) {
  open();
  const double values[3] = {};
  Pass pass = begin();
  EXPECT_THAT(pass.add_gradient(b_, {.data = values, .dtype = DType::kF64}),
              Fails(Code::kInvalidArgument, AllOf(HasSubstr("'b'"), HasSubstr("F64"), HasSubstr("BF16"))));
  EXPECT_THAT(pass.add_gradient(ParameterId{7}, Gradient::f32(nullptr)),
              Fails(Code::kInvalidArgument, HasSubstr("7")));
}

TEST_F(GradientsTest, Bf16OnceRoundsToNearestEvenAndItsNormIsOfWhatIsKept) {
  open(GradientStorage::kBf16Once);
  // 1 + 2^-8 and 1 + 3 * 2^-8 are ties between bf16 values; both go to the even one.
  EXPECT_EQ(train(b_, {1 + 0x1p-8F, 1 + 3 * 0x1p-8F, 0}).norm, std::sqrt(1 + (1 + 0x1p-6) * (1 + 0x1p-6)));
  EXPECT_THAT(used(b_), ElementsAre(1, 1 + 0x1p-6F, 0));
}

TEST_F(GradientsTest, Bf16OnceRefusesASecondContributionAndParts) {
  open(GradientStorage::kBf16Once);
  Pass pass = begin();
  const Values values(3, 1);
  Gradient part = Gradient::f32(values.data());
  part.more = More::kYes;
  EXPECT_THAT(pass.add_gradient(b_, part), Fails(Code::kFailedPrecondition, HasSubstr("not in parts")));
  give(pass, b_, values);
  EXPECT_THAT(pass.add_gradient(b_, Gradient::f32(values.data())),
              Fails(Code::kFailedPrecondition, AllOf(HasSubstr("'b'"), HasSubstr("one contribution"))));
  step(pass);
  EXPECT_THAT(used(b_), Each(1));
}

TEST_F(GradientsTest, ABadValueAnywhereSkipsTheStepAndLeavesEveryBitAndCount) {
  open(GradientStorage::kFp32, AdamW{});
  train(a_, many(1));
  train(b_, {1, 2, 3});
  const auto a = state(a_), b = state(b_);
  const float bad[] = {INFINITY, -INFINITY, NAN};
  for (const std::uint64_t at : {std::uint64_t{0}, kChunk, kMany - 1}) {
    Pass pass = begin({.micro_batches = 2});
    give(pass, b_, {1, 1, 1});
    give(pass, a_, many(1));
    Values last = many(1);
    last[at] = bad[at % 3];
    give(pass, a_, last);
    const StepResult result = step(pass);
    EXPECT_TRUE(result.skipped) << "element " << at;
    EXPECT_EQ(result.norm, INFINITY);
    EXPECT_EQ(result.step, 2U);
    EXPECT_EQ(state(a_), a);
    EXPECT_EQ(state(b_), b);
  }
  EXPECT_EQ(engine->stats().skipped_steps, 3U);
  EXPECT_EQ(train(b_, {3, 0, 4}).norm, 5);  // nothing of them is left
}

TEST_F(GradientsTest, ABadValueThatALaterContributionHidesSkipsAllTheSame) {
  open();
  Pass pass = begin({.micro_batches = 2});
  give(pass, b_, {INFINITY, 0, 0});
  give(pass, b_, {0, 0, 0});
  EXPECT_TRUE(step(pass).skipped);
}

TEST_F(GradientsTest, IgnoringBadValuesUpdatesTheGoodElementsOnly) {
  open(GradientStorage::kFp32, {.lr = 1, .weight_decay = 0});
  const StepResult result = train(b_, {NAN, 1, 1}, {.non_finite = NonFinite::kIgnore});
  EXPECT_FALSE(result.skipped);
  EXPECT_EQ(result.norm, INFINITY);
  EXPECT_THAT(read(b_),
              ElementsAre(testing::IsNan(), testing::FloatNear(0, 1e-6F), testing::FloatNear(0, 1e-6F)));
}

TEST_F(GradientsTest, NormIsThatOfTheStepAndOfAllParametersSoFar) {
  open();
  Pass pass = begin({.loss_scale = 4, .gradient_divisor = 2});
  give(pass, b_, {24, 0, 0});
  EXPECT_EQ(*pass.norm(), 3);
  give(pass, b_, {0, 32, 0});
  EXPECT_EQ(*pass.norm(), 5);
  give(pass, a_, many(8));
  const double norm = *pass.norm();
  EXPECT_DOUBLE_EQ(norm, std::sqrt(25.0 + static_cast<double>(kMany)));
  EXPECT_EQ(step(pass).norm, norm);
}

TEST_F(GradientsTest, NormOfHugeFiniteGradientsIsFinite) {
  open();
  const float huge = std::numeric_limits<float>::max();
  const StepResult result = train(a_, many(huge), {.loss_scale = 1024});
  EXPECT_FALSE(result.skipped);
  EXPECT_DOUBLE_EQ(result.norm, huge / 1024.0 * std::sqrt(static_cast<double>(kMany)));
}

TEST_F(GradientsTest, UnscaleDivideAndClipAreOneFactor) {
  open();
  const StepResult result = train(b_, {48, 0, 64}, {.max_norm = 2, .loss_scale = 8, .gradient_divisor = 2});
  EXPECT_EQ(result.norm, 5);
  const auto factor = static_cast<float>(2 / (5 + 1e-6) / 16);
  EXPECT_THAT(used(b_), ElementsAre(48 * factor, 0, 64 * factor));
}

TEST_F(GradientsTest, NormsBelowTheBoundAreNotClipped) {
  open();
  EXPECT_EQ(train(b_, {3, 0, 4}, {.max_norm = 5.1}).norm, 5);
  EXPECT_THAT(used(b_), ElementsAre(3, 0, 4));
}

TEST_F(GradientsTest, StepsAreAdamWsWithTheKnownValues) {
  open(GradientStorage::kFp32, {.lr = 1e-2, .weight_decay = 0.1});
  const double expected[] = {0.989000000200, 0.985347629871, 0.980957990862};
  const float gradients[] = {0.5F, -0.25F, 0.125F};
  for (int i = 0; i < 3; ++i) {
    train(a_, many(gradients[i]));
    EXPECT_THAT(read(a_), Each(testing::FloatNear(static_cast<float>(expected[i]), 2e-7F)));
  }
  EXPECT_EQ(count(a_), 3U);
}

TEST_F(GradientsTest, WithoutALearningRateMomentsAdvanceAndWeightsStay) {
  open(GradientStorage::kFp32, {.lr = 0, .beta1 = 0.5});
  train(a_, many(2));
  EXPECT_THAT(read(a_), Each(1));
  EXPECT_THAT(used(a_), Each(1));
  EXPECT_EQ(count(a_), 1U);
}

TEST_F(GradientsTest, UpdateGroupChangesTheNextStepAndTheOneUnderWay) {
  open();
  ASSERT_THAT(engine->update_group({0}, AdamW{.lr = 0, .beta1 = 0.5}), IsOk());
  train(a_, many(2));
  EXPECT_THAT(read(a_), Each(1));
  EXPECT_THAT(used(a_), Each(1));
  Pass pass = begin();
  give(pass, a_, many(2));
  ASSERT_THAT(engine->update_group({0}, kShowsGradient), IsOk());
  step(pass);
  EXPECT_THAT(used(a_), Each(2));
  EXPECT_THAT(read(a_), testing::Not(testing::Contains(1.0F)));
}

TEST_F(GradientsTest, UpdateGroupRefusesBadNumbersAndForeignGroups) {
  open();
  EXPECT_THAT(engine->update_group({0}, AdamW{.eps = 0}),
              Fails(Code::kInvalidArgument, HasSubstr("eps = 0")));
  EXPECT_THAT(engine->update_group({9}, AdamW{}), Fails(Code::kInvalidArgument, HasSubstr("group = 9")));
}

TEST_F(GradientsTest, StepRestatesTheNumbersOfItsPass) {
  open();
  Pass pass = begin({.max_norm = 1, .loss_scale = 2});
  give(pass, b_, {12, 0, 16});
  EXPECT_THAT(pass.step({.loss_scale = -1}), Fails(Code::kInvalidArgument, HasSubstr("loss_scale = -1")));
  const Result<StepResult> result = pass.step({.loss_scale = 4});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->norm, 5);
  EXPECT_THAT(used(b_), ElementsAre(3, 0, 4));
}

TEST_F(GradientsTest, SpilledOnesAddUpToTheSameBits) {
  const auto trained = [this](std::uint64_t host_budget_bytes) {
    options.host_budget_bytes = host_budget_bytes;
    make();
    const ParameterId large = add("large", {dim(12 * kChunk)});
    seal();
    Values values(12 * kChunk);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1009) * 1e-3F - 0.4F;
    Pass pass = begin({.max_norm = 1, .micro_batches = 2});
    give(pass, large, values);
    give(pass, large, values);
    const double norm = step(pass).norm;
    EXPECT_EQ(engine->stats().gradient_bytes_written > 0, host_budget_bytes != kUnlimited);
    return std::pair(norm, state(large));
  };
  EXPECT_EQ(trained(3 * kChunk * 16 + 2 * kChunk * 2), trained(kUnlimited));
}

}  // namespace
}  // namespace sluice
