#include <cmath>
#include <limits>

#include "engine/policy_engine.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::Fails;
using sim::IsOk;
using sim::kept_as;
using sim::PolicyCase;
using sim::PolicyEngine;
using sim::some_values;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Policies : public PolicyEngine, public testing::WithParamInterface<PolicyCase> {
 protected:
  /// `test` with all records in memory, and with all of them on the drive.
  template <class Test>
  void wherever_state_lives(const Test& test) {
    {
      SCOPED_TRACE("in memory");
      options.host_budget_bytes = kUnlimited;
      EXPECT_GT(open(GetParam()).resident_chunks, 0U);
      test();
    }
    SCOPED_TRACE("on the drive");
    open_out_of_core(GetParam());
    test();
  }
};

TEST_P(Policies, KeepFirstValuesAsMastersAndBeginWithoutMoments) {
  wherever_state_lives([&] {
    for (const Parameter& parameter : parameters) {
      SCOPED_TRACE(parameter.name);
      EXPECT_EQ(read(parameter.id, View::kMaster), parameter.first);
      EXPECT_EQ(read(parameter.id, View::kWeight), kept_as(GetParam(), View::kWeight, parameter.first));
      for (const View view : {View::kMoment1, View::kMoment2}) {
        if (GetParam().has(view)) {
          EXPECT_THAT(read(parameter.id, view), Each(0));
        }
      }
      EXPECT_EQ(count(parameter.id), 0U);
    }
  });
}

TEST_P(Policies, RefuseAMomentThatTheRuleDoesNotKeepByName) {
  open(GetParam());
  float value = 1;
  for (const View view : {View::kMoment1, View::kMoment2}) {
    const bool kept = GetParam().has(view);
    const Status read = engine->read(parameters[2].id, view, {3, 1}, &value, DType::kF32);
    const Status written = engine->write(parameters[2].id, view, {3, 1}, &value, DType::kF32);
    if (kept) {
      EXPECT_THAT(read, IsOk());
      EXPECT_THAT(written, IsOk());
      continue;
    }
    const auto refusal = AllOf(HasSubstr("'p255'"), HasSubstr(kind_of(GetParam().optimizer).name),
                               HasSubstr(view == View::kMoment1 ? "moment1" : "moment2"));
    EXPECT_THAT(read, Fails(Code::kInvalidArgument, refusal));
    EXPECT_THAT(written, Fails(Code::kInvalidArgument, refusal));
  }
}

TEST_P(Policies, ShowWhatWasWrittenAsTheyKeepItAndLeaveTheRest) {
  wherever_state_lives([&] {
    const Parameter& it = parameters.back();
    for (const View view : GetParam().views()) {
      // All of it, whole granules, from and to the middle of granules over a chunk's boundary, one element.
      for (const Range range : {Range{0, it.elements}, Range{512, kChunk}, Range{1000, kChunk + 777},
                                Range{it.elements - 1, 1}, Range{70, 0}}) {
        SCOPED_TRACE(testing::Message()
                     << "view " << static_cast<int>(view) << ", " << range.count << " from " << range.first);
        State expected = state_of_all();
        Values shown = read(it.id, view);
        const Values values = some_values(range.count, range.first + 7, view);
        ASSERT_THAT(engine->write(it.id, view, range, values.data(), DType::kF32), IsOk());
        // The granules that the range touches.
        const std::uint64_t first = range.first / 256 * 256;
        const std::uint64_t last =
            range.count == 0 ? first : std::min(it.elements, (range.first + range.count + 255) / 256 * 256);
        std::copy(values.begin(), values.end(), shown.begin() + static_cast<std::ptrdiff_t>(range.first));
        const auto at = [&](std::uint64_t element) {
          return shown.begin() + static_cast<std::ptrdiff_t>(element);
        };
        const Values kept = kept_as(GetParam(), view, Values(at(first), at(last)));
        std::copy(kept.begin(), kept.end(), at(first));
        EXPECT_EQ(read(it.id, view), shown);
        // A weight is its master's, and a master makes its weight.
        if (view == View::kWeight || view == View::kMaster) {
          Values master = expected[it.name][1];
          std::copy(values.begin(), values.end(), master.begin() + static_cast<std::ptrdiff_t>(range.first));
          expected[it.name][1] = master;
          expected[it.name][0] = kept_as(GetParam(), View::kWeight, master);
        } else {
          const bool second = view == View::kMoment2 && GetParam().has(View::kMoment1);
          expected[it.name][second ? 3 : 2] = shown;
        }
        EXPECT_EQ(state_of_all(), expected);
      }
    }
  });
}

TEST_P(Policies, GiveBackWhatTheyShowedBitForBitInWholeGranules) {
  open(GetParam());
  step_all(0);
  step_all(1);
  const State expected = state_of_all();
  for (const Parameter& parameter : parameters)
    for (const View view : GetParam().views()) {
      if (view == View::kWeight) continue;  // which the master gives
      const Values values = read(parameter.id, view);
      const Values zeros(values.size());
      const Range all{0, values.size()};
      ASSERT_THAT(engine->write(parameter.id, view, all, zeros.data(), DType::kF32), IsOk());
      ASSERT_THAT(engine->write(parameter.id, view, all, values.data(), DType::kF32), IsOk());
    }
  EXPECT_EQ(state_of_all(), expected);
}

TEST_P(Policies, StepAsTheKernelsDoOnPlainArrays) {
  options.seed = 0x123456789abcdef;
  wherever_state_lives([&] {
    std::vector<sim::PlainPlanes> plain;
    for (const Parameter& parameter : parameters)
      plain.emplace_back(parameter.name, GetParam(), parameter.first);
    for (std::uint64_t at = 0; at < 3; ++at) {
      step_all(at);
      for (std::size_t i = 0; i < plain.size(); ++i)
        plain[i].step(gradient_of(parameters[i], at), options.seed);
    }
    for (std::size_t i = 0; i < plain.size(); ++i)
      for (const View view : GetParam().views())
        EXPECT_EQ(read(parameters[i].id, view), plain[i].read(view))
            << parameters[i].name << ", view " << static_cast<int>(view);
  });
}

TEST_P(Policies, MoveTheBytesOfTheirPlanesInAStepAndNoOther) {
  // Chunks whose planes all end on the grid: a scale plane of 256 Ki elements has 4096 bytes.
  options.chunk_elements = 1 << 18;
  constexpr std::uint64_t kElements = 4 << 18;
  parameters = {{.name = "it", .elements = kElements}};
  open_out_of_core(GetParam());
  const Stats before = engine->stats();
  step_all(0);
  const Stats after = engine->stats();
  const bool split = GetParam().policy != Policy::kFp16Master;
  const double of_weights = split ? 4 : 6;
  const double of_a_moment = GetParam().policy == Policy::kMoments8      ? 1 + 4.0 / 256
                             : GetParam().policy == Policy::kBf16Moments ? 2
                                                                         : 4;
  const double bytes =
      of_weights + of_a_moment * (GetParam().has(View::kMoment1) + GetParam().has(View::kMoment2));
  const auto expected = static_cast<std::uint64_t>(kElements * bytes);
  EXPECT_EQ(after.state_bytes, expected);
  EXPECT_EQ(after.record_bytes_read - before.record_bytes_read, expected);
  EXPECT_EQ(after.record_bytes_written - before.record_bytes_written, expected);
  EXPECT_EQ(after.gradient_bytes_read, after.gradient_bytes_written);
}

TEST_P(Policies, CountFiniteMastersWhoseWeightIsInfinite) {
  const bool fp16 = GetParam().policy == Policy::kFp16Master;
  const float huge = fp16 ? 70'000 : 3.4e38F;
  const std::uint64_t counted = GetParam().policy == Policy::kFp32 ? 0 : 2;
  wherever_state_lives([&] {
    const Parameter& it = parameters.back();
    const Values values{huge, -huge, 1, kInfinity, std::numeric_limits<float>::quiet_NaN()};
    ASSERT_THAT(engine->write(it.id, View::kMaster, {kChunk - 2, 5}, values.data(), DType::kF32), IsOk());
    EXPECT_EQ(engine->stats().weights_overflowed, counted);
    Values shown(3);
    ASSERT_THAT(engine->read(it.id, View::kMaster, {kChunk - 2, 3}, shown.data(), DType::kF32), IsOk());
    EXPECT_EQ(shown, Values(values.begin(), values.begin() + 3));
    ASSERT_THAT(engine->write(it.id, View::kMaster, {kChunk - 2, 5}, Values(5).data(), DType::kF32), IsOk());
    EXPECT_EQ(engine->stats().weights_overflowed, 0U);
  });
  clear_drive();
  make();
  const ParameterId big =
      add("big", {300}, {.policy = GetParam().policy, .optimizer = GetParam().optimizer}, Constant{huge});
  seal();
  EXPECT_EQ(engine->stats().weights_overflowed, counted == 0 ? 0U : 300U);
  EXPECT_THAT(read(big, View::kMaster), Each(huge));
}

TEST_P(Policies, CountOverflowedWeightsOnInParametersWithoutAGradient) {
  const bool fp16 = GetParam().policy == Policy::kFp16Master;
  const float huge = fp16 ? 70'000 : 3.4e38F;
  const std::uint64_t counted = GetParam().policy == Policy::kFp32 ? 0 : 300;
  wherever_state_lives([&] {
    // Side by side in one chunk, the overflowed one before, between and behind those that are stepped.
    for (const Parameter& it : parameters) {
      if (it.elements < 255) continue;
      SCOPED_TRACE(it.name);
      const std::uint64_t expected = std::min(counted, it.elements);
      const Values values(std::min<std::uint64_t>(300, it.elements), huge);
      const Range range{0, values.size()};
      ASSERT_THAT(engine->write(it.id, View::kMaster, range, values.data(), DType::kF32), IsOk());
      ASSERT_EQ(engine->stats().weights_overflowed, expected);
      Pass pass = begin();
      for (const Parameter& other : parameters)
        if (&other != &it) give(pass, other.id, gradient_of(other, 0));
      step(pass);
      EXPECT_EQ(engine->stats().weights_overflowed, expected);
      ASSERT_THAT(engine->write(it.id, View::kMaster, range, Values(values.size()).data(), DType::kF32),
                  IsOk());
      EXPECT_EQ(engine->stats().weights_overflowed, 0U);
    }
  });
}

TEST_P(Policies, TakeEveryDType) {
  open(GetParam());
  const Values values{1.5F, -2, 0.09375F}, squares{1.5F, 2, 0.09375F};
  for (const View view : GetParam().views()) {
    const Values& given = view == View::kMoment2 ? squares : values;
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const auto narrow = dtype == DType::kF16 ? kernels::f32_to_f16 : kernels::f32_to_bf16;
      std::vector<std::uint16_t> halves(3), got(3), expected(3);
      narrow(halves.data(), given.data(), 3);
      ASSERT_THAT(engine->write(parameters[2].id, view, {9, 3}, halves.data(), dtype), IsOk());
      Values shown(3);
      ASSERT_THAT(engine->read(parameters[2].id, view, {9, 3}, shown.data(), DType::kF32), IsOk());
      narrow(expected.data(), shown.data(), 3);
      ASSERT_THAT(engine->read(parameters[2].id, view, {9, 3}, got.data(), dtype), IsOk());
      EXPECT_EQ(got, expected);
      if (!GetParam().is_coded(view)) {
        EXPECT_EQ(shown, given);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AndRules, Policies, testing::ValuesIn(sim::policy_cases()), sim::name_of);

class EightBits : public PolicyEngine {};

TEST_F(EightBits, RefuseMomentsThatTheyHaveNoCodeFor) {
  open({Policy::kMoments8, AdamW{}});
  const State before = state_of_all();
  const ParameterId it = parameters.back().id;
  const auto write = [&](View view, float value) {
    Values values(kChunk + 3, 1);
    values.back() = value;
    return engine->write(it, view, {5, values.size()}, values.data(), DType::kF32);
  };
  const auto refusal = AllOf(HasSubstr("'p65836'"), HasSubstr("moments8"));
  for (const View view : {View::kMoment1, View::kMoment2})
    EXPECT_THAT(write(view, kInfinity), Fails(Code::kInvalidArgument, refusal));
  EXPECT_THAT(write(View::kMoment2, -1e-3F), Fails(Code::kInvalidArgument, refusal));
  EXPECT_EQ(state_of_all(), before);
  EXPECT_THAT(write(View::kMoment1, -1e-3F), IsOk());
  EXPECT_THAT(write(View::kMoment2, -0.0F), IsOk());
  EXPECT_THAT(write(View::kMaster, kInfinity), IsOk());
}

TEST_F(EightBits, TakeFiniteMomentsWhereAGranuleThatEndsInAGapWasNaN) {
  open({Policy::kMoments8, AdamW{}});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Parameter& it : parameters) {
    SCOPED_TRACE(it.name);
    if (it.elements == 0) continue;
    for (const View view : {View::kMoment1, View::kMoment2}) {
      ASSERT_THAT(engine->write(it.id, view, {it.elements - 1, 1}, &nan, DType::kF32), IsOk());
      EXPECT_TRUE(std::isnan(read(it.id, view).back()));
      const Values values = some_values(it.elements, 7, view);
      ASSERT_THAT(engine->write(it.id, view, {0, it.elements}, values.data(), DType::kF32), IsOk());
      EXPECT_EQ(read(it.id, view), kept_as(case_, view, values));
    }
  }
}

TEST_F(EightBits, ShowTheirCodesAndScales) {
  for (const Optimizer& rule : {Optimizer(AdamW{}), Optimizer(Lion{})}) {
    open({Policy::kMoments8, rule});
    step_all(0);
    for (const Parameter& parameter : parameters)
      for (const View view : {View::kMoment1, View::kMoment2}) {
        if (!case_.has(view)) continue;
        const bool first = view == View::kMoment1;
        std::vector<std::uint8_t> codes(parameter.elements);
        Values scales((parameter.elements + 255) / 256), values(parameter.elements);
        const Range all{0, parameter.elements};
        ASSERT_THAT(engine->read(parameter.id, view, all, codes.data(), DType::kU8), IsOk());
        ASSERT_THAT(engine->read(parameter.id, first ? View::kScale1 : View::kScale2, all, scales.data(),
                                 DType::kF32),
                    IsOk());
        kernels::decode_moments8(values.data(), codes.data(), scales.data(), parameter.elements,
                                 first ? kernels::Moment8::kSigned : kernels::Moment8::kUnsigned);
        EXPECT_EQ(values, read(parameter.id, view)) << parameter.name;
        if (parameter.elements < 512) continue;
        Values some(2);
        ASSERT_THAT(engine->read(parameter.id, first ? View::kScale1 : View::kScale2, {kChunk, 300},
                                 some.data(), DType::kF32),
                    IsOk());
        EXPECT_EQ(some, Values(scales.begin() + kChunk / 256, scales.begin() + kChunk / 256 + 2));
      }
  }
}

TEST_F(EightBits, TakeNoCodesAndScalesAndAloneHaveThem) {
  open({Policy::kMoments8, Lion{}});
  const ParameterId it = parameters.back().id;
  float scale = 1;
  std::uint8_t code = 1;
  const auto refusal = [](const char* what) { return Fails(Code::kInvalidArgument, HasSubstr(what)); };
  EXPECT_THAT(engine->write(it, View::kScale1, {0, 1}, &scale, DType::kF32), refusal("follow from moments"));
  EXPECT_THAT(engine->write(it, View::kMoment1, {0, 1}, &code, DType::kU8), refusal("follow from moments"));
  EXPECT_THAT(engine->read(it, View::kScale1, {3, 1}, &scale, DType::kF32), refusal("multiple of 256"));
  EXPECT_THAT(engine->read(it, View::kScale1, {0, 1}, &scale, DType::kBF16), refusal("as F32"));
  EXPECT_THAT(engine->read(it, View::kScale2, {0, 1}, &scale, DType::kF32), refusal("no scale2"));
  EXPECT_THAT(engine->read(it, View::kMaster, {0, 1}, &code, DType::kU8), refusal("dtype = U8"));
  open({Policy::kBf16Moments, AdamW{}});
  EXPECT_THAT(engine->read(parameters.back().id, View::kScale1, {0, 1}, &scale, DType::kF32),
              refusal("policy bf16_moments with optimizer adamw keeps no scale1"));
  EXPECT_THAT(engine->read(parameters.back().id, View::kMoment1, {0, 1}, &code, DType::kU8),
              refusal("dtype = U8"));
}

}  // namespace
}  // namespace sluice
