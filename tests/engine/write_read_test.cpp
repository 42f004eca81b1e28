#include <cerrno>
#include <numeric>

#include "engine/small_engine.hpp"
#include "kernels/convert.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::Fails;
using sim::IsOk;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr View kValueViews[] = {View::kWeight, View::kMaster, View::kMoment1, View::kMoment2};

/// A parameter over four chunks that starts in the middle of one.
class WriteRead : public sim::EngineTest {
 protected:
  static constexpr std::uint64_t kMany = 3 * kChunk;

  void open(Policy policy = Policy::kBf16Split) {
    make();
    before_ = add("before", {dim(kChunk / 2)}, {.policy = policy}, Normal{});
    it_ = add("it", {dim(kMany)}, {.policy = policy}, Normal{});
    after_ = add("after", {dim(kChunk / 2)}, {.policy = policy}, Normal{});
    seal();
  }
  static Values ramp(std::uint64_t count, float first) {
    Values values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  Status write(View view, std::uint64_t first, const Values& values) {
    return engine->write(it_, view, {first, values.size()}, values.data(), DType::kF32);
  }
  std::vector<std::vector<Values>> everything() const { return {state(before_), state(it_), state(after_)}; }

  ParameterId before_, it_, after_;
};

class WhereStateLives : public WriteRead, public testing::WithParamInterface<std::uint64_t> {
 protected:
  WhereStateLives() { options.host_budget_bytes = GetParam(); }
};

TEST_P(WhereStateLives, EveryViewReadsBackWhatWasWrittenInPartAcrossChunks) {
  for (const Policy policy : {Policy::kBf16Split, Policy::kFp32}) {
    open(policy);
    for (const View view : kValueViews) {
      // A bf16_split weight is a part of its master: what is written is the master's value.
      const bool split = view == View::kWeight && policy == Policy::kBf16Split;
      const View whole = split ? View::kMaster : view;
      Values expected = read(it_, whole);
      const std::vector<Values> before = state(before_), after = state(after_);
      const Values values = ramp(2 * kChunk + 77, static_cast<float>(view));
      ASSERT_THAT(write(view, 1000, values), IsOk());
      std::copy(values.begin(), values.end(), expected.begin() + 1000);
      EXPECT_EQ(read(it_, whole), expected);
      EXPECT_EQ(state(before_), before);
      EXPECT_EQ(state(after_), after);
    }
  }
}

TEST_P(WhereStateLives, FetchesSeeWhatWasWrittenWhereverACopyWas) {
  open();
  for (int round = 0; round < 3; ++round) {
    const Values values = ramp(kMany, static_cast<float>(round) * 1000);
    ASSERT_THAT(write(View::kMaster, 0, values), IsOk());
    std::vector<std::uint16_t> expected(kMany);
    std::vector<std::int16_t> residual(kMany);
    kernels::split_bf16(expected.data(), residual.data(), values.data(), kMany);
    Pass pass = look();
    const Lease lease = fetch(pass, {it_});
    EXPECT_EQ(bits(lease[it_]), expected);
  }
}

TEST_P(WhereStateLives, AFailedWriteChangesNothingWhicheverTransferFails) {
  std::uint64_t hits = 0;
  for (const io::Op op : {io::Op::kRead, io::Op::kWrite}) {
    bool failed = true;
    for (std::uint64_t at = 0; failed && at < 100; ++at) {
      open();
      {
        Pass pass = look();
        (void)fetch(pass, {it_});
      }
      const auto before = everything();
      house.backend->faults().add({.op = op, .error = EIO, .skip = at, .count = 1});
      const Status status = write(View::kMaster, 5, ramp(2 * kChunk, 0));
      house.backend->faults().clear();
      failed = !status.ok();
      if (!failed) break;
      ++hits;
      EXPECT_THAT(status, Fails(Code::kIoError, HasSubstr("'it'")));
      EXPECT_EQ(everything(), before);
      Pass pass = look();
      const Lease lease = fetch(pass, {it_});
      std::vector<std::uint16_t> expected(kMany);
      kernels::f32_to_bf16(expected.data(), before[1][0].data(), kMany);
      EXPECT_EQ(bits(lease[it_]), expected);
    }
    EXPECT_FALSE(failed) << "no write came through";
  }
  EXPECT_EQ(hits > 0, GetParam() != kUnlimited);
}
// Everything in host memory, and everything on the drive with the fewest frames.
INSTANTIATE_TEST_SUITE_P(HostBudgets, WhereStateLives,
                         testing::Values(kUnlimited, 3 * (16 << 10) * 16 + 2 * (16 << 10) * 4));

TEST_F(WriteRead, EveryDTypeConverts) {
  open();
  const Values values{1.5F, -2, 0.09375F};
  std::vector<std::uint16_t> bf16(3), f16(3), got(3);
  kernels::f32_to_bf16(bf16.data(), values.data(), 3);
  kernels::f32_to_f16(f16.data(), values.data(), 3);
  for (const View view : kValueViews) {
    ASSERT_THAT(engine->write(it_, view, {9, 3}, f16.data(), DType::kF16), IsOk());
    ASSERT_THAT(engine->read(it_, view, {9, 3}, got.data(), DType::kBF16), IsOk());
    EXPECT_EQ(got, bf16);
    ASSERT_THAT(engine->write(it_, view, {9, 3}, bf16.data(), DType::kBF16), IsOk());
    ASSERT_THAT(engine->read(it_, view, {9, 3}, got.data(), DType::kF16), IsOk());
    EXPECT_EQ(got, f16);
  }
}

TEST_F(WriteRead, Bf16WritesLeaveNoResidual) {
  open();
  const std::vector<std::uint16_t> ones(kMany, 0x3f80);
  ASSERT_THAT(engine->write(it_, View::kWeight, {0, kMany}, ones.data(), DType::kBF16), IsOk());
  EXPECT_THAT(read(it_, View::kMaster), Each(1));
}

TEST_F(WriteRead, F32WritesKeepEveryBitOfTheMaster) {
  open();
  ASSERT_THAT(write(View::kMaster, 0, Values(kMany, 1 + 0x1p-23F)), IsOk());
  EXPECT_THAT(read(it_, View::kMaster), Each(1 + 0x1p-23F));
  EXPECT_THAT(read(it_, View::kWeight), Each(1));
}

TEST_F(WriteRead, WeightsThatOverflowBf16AreCountedAndKeepTheirMaster) {
  for (const std::uint64_t budget : {kUnlimited, 3 * kChunk * 16 + 2 * kChunk * 2}) {
    options.host_budget_bytes = budget;
    open();
    const float huge = 3.4e38F;
    ASSERT_THAT(write(View::kMaster, kChunk, {huge, -huge, 1, INFINITY}), IsOk());
    EXPECT_EQ(engine->stats().weights_overflowed, 2U);
    Values master(4);
    ASSERT_THAT(engine->read(it_, View::kMaster, {kChunk, 4}, master.data(), DType::kF32), IsOk());
    EXPECT_THAT(master, testing::ElementsAre(huge, -huge, 1, INFINITY));
    ASSERT_THAT(engine->read(it_, View::kWeight, {kChunk, 4}, master.data(), DType::kF32), IsOk());
    EXPECT_THAT(master, testing::ElementsAre(INFINITY, -INFINITY, 1, INFINITY));
    ASSERT_THAT(write(View::kMaster, kChunk, {1, 1, 1, 1}), IsOk());
    EXPECT_EQ(engine->stats().weights_overflowed, 0U);
  }
}

TEST_F(WriteRead, CountsAreReadAndWrittenAsOneU64) {
  open();
  const std::uint64_t steps = std::uint64_t{1} << 40;
  ASSERT_THAT(engine->write(it_, View::kCount, {0, 1}, &steps, DType::kU64), IsOk());
  EXPECT_EQ(count(it_), steps);
  EXPECT_EQ(count(before_), 0U);
  train(it_, Values(kMany, 1));
  EXPECT_EQ(count(it_), steps + 1);
  EXPECT_THAT(engine->write(it_, View::kCount, {0, 2}, &steps, DType::kU64),
              Fails(Code::kInvalidArgument, HasSubstr("count")));
  EXPECT_THAT(engine->write(it_, View::kCount, {0, 1}, &steps, DType::kF32),
              Fails(Code::kInvalidArgument, HasSubstr("U64")));
}

TEST_F(WriteRead, RangesOutsideAndOtherDTypesAreRefused) {
  open();
  const auto before = everything();
  Values values(4);
  const std::uint64_t max = ~std::uint64_t{0};
  for (const Range range :
       {Range{kMany, 1}, Range{kMany - 3, 4}, Range{kMany + 1, 0}, Range{1, max}, Range{max, 2}}) {
    EXPECT_THAT(engine->read(it_, View::kMaster, range, values.data(), DType::kF32),
                Fails(Code::kInvalidArgument, AllOf(HasSubstr("'it'"), HasSubstr("49152"))));
    EXPECT_THAT(engine->write(it_, View::kMaster, range, values.data(), DType::kF32),
                Fails(Code::kInvalidArgument, HasSubstr("'it'")));
  }
  EXPECT_THAT(engine->read(it_, View::kMaster, {0, 1}, values.data(), DType::kI32),
              Fails(Code::kInvalidArgument, AllOf(HasSubstr("I32"), HasSubstr("F32, BF16, F16"))));
  EXPECT_THAT(engine->read(ParameterId{9}, View::kMaster, {0, 1}, values.data(), DType::kF32),
              Fails(Code::kInvalidArgument, HasSubstr("9")));
  EXPECT_THAT(engine->read(it_, View::kMaster, {kMany, 0}, nullptr, DType::kF32), IsOk());
  EXPECT_EQ(everything(), before);
}

TEST_F(WriteRead, FrozenWeightsAreWrittenAndFetched) {
  options.host_budget_bytes = 2 * kChunk * 2;
  make();
  it_ = add("it", {dim(kMany)}, {.policy = Policy::kFrozen}, Zeros{});
  seal();
  for (const float value : {1.0F, 2.0F}) {
    ASSERT_THAT(write(View::kWeight, 0, Values(kMany, value)), IsOk());
    Pass pass = look();
    const Lease lease = fetch(pass, {it_});
    EXPECT_THAT(bits(lease[it_]), Each(value == 1 ? 0x3f80 : 0x4000));
  }
}

TEST_F(WriteRead, FrozenIntegersAreTakenAsTheyAre) {
  make();
  it_ = add("it", {3}, {.policy = Policy::kFrozen, .frozen_dtype = DType::kI32}, Zeros{});
  seal();
  const std::vector<std::int32_t> values{1, -2, 1 << 30};
  std::vector<std::int32_t> got(3);
  ASSERT_THAT(engine->write(it_, View::kWeight, {0, 3}, values.data(), DType::kI32), IsOk());
  ASSERT_THAT(engine->read(it_, View::kWeight, {0, 3}, got.data(), DType::kI32), IsOk());
  EXPECT_EQ(got, values);
  EXPECT_THAT(engine->write(it_, View::kWeight, {0, 3}, values.data(), DType::kF32),
              Fails(Code::kInvalidArgument, HasSubstr("accepted: I32")));
}

TEST_F(WriteRead, KeptParametersAreRefreshed) {
  make();
  it_ = add("it", {dim(kMany)}, {}, Normal{}, Residency::kDevice);
  seal();
  {
    Pass pass = look();
    (void)fetch(pass, {it_});
  }
  ASSERT_THAT(write(View::kMaster, 0, Values(kMany, 1)), IsOk());
  Pass pass = look();
  const Lease lease = fetch(pass, {it_});
  EXPECT_THAT(bits(lease[it_]), Each(0x3f80));
}

TEST_F(WriteRead, GoBetweenPassesAlone) {
  open();
  const Values value{1};
  Values got(1);
  Pass training = begin();
  EXPECT_THAT(write(View::kMaster, 0, value), Fails(Code::kFailedPrecondition, HasSubstr("between passes")));
  EXPECT_THAT(engine->read(it_, View::kMaster, {0, 1}, got.data(), DType::kF32),
              Fails(Code::kFailedPrecondition, HasSubstr("between passes")));
  EXPECT_THAT(training.abort(), IsOk());
  Pass pass = look();
  EXPECT_THAT(write(View::kMaster, 0, value), Fails(Code::kFailedPrecondition, HasSubstr("between passes")));
  EXPECT_THAT(pass.end(), IsOk());
  EXPECT_THAT(write(View::kMaster, 0, value), IsOk());
}

TEST_F(WriteRead, WithALeaseOpenAWriteIsRefusedByName) {
  open();
  Pass aborted = look();
  Lease lease = fetch(aborted, {it_});
  EXPECT_THAT(aborted.abort(), IsOk());
  EXPECT_THAT(write(View::kMaster, 0, {1}), Fails(Code::kFailedPrecondition, HasSubstr("'it'")));
  const float value = 1;
  EXPECT_THAT(engine->write(before_, View::kMaster, {0, 1}, &value, DType::kF32), IsOk());
  lease.release();
  EXPECT_THAT(write(View::kMaster, 0, {1}), IsOk());
}

}  // namespace
}  // namespace sluice
