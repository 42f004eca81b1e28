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
using testing::Not;

class Parameters : public sim::EngineTest {};

TEST_F(Parameters, LargerThanAChunkArriveContiguousAndAligned) {
  const ParameterId large = add("large", {5, dim(kChunk) / 2 + 3}, {}, Normal{});
  const std::uint64_t elements = 5 * (kChunk / 2 + 3);
  seal();
  std::vector<std::uint16_t> expected(elements);
  ASSERT_THAT(engine->read(large, View::kWeight, {0, elements}, expected.data(), DType::kBF16), IsOk());
  Pass pass = look();
  const Lease lease = fetch(pass, {large});
  EXPECT_EQ(lease[large].elements, elements);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lease[large].data) % 256, 0U);
  EXPECT_EQ(bits(lease[large]), expected);
}

TEST_F(Parameters, LargerThanAllHostFramesTogetherAreTrained) {
  // 40 chunks; the least budget holds three records, three gradients and two weight planes.
  options.host_budget_bytes = 3 * kChunk * 16 + 2 * kChunk * 2;
  const ParameterId large = add("large", {dim(40 * kChunk)}, {.optimizer = sim::kShowsGradient});
  EXPECT_EQ(seal().resident_chunks, 0U);
  train(large, Values(40 * kChunk, 0.5F));
  EXPECT_THAT(read(large, View::kMoment1), Each(0.5F));
}

TEST_F(Parameters, WithoutElementsGoThroughEveryCall) {
  const ParameterId empty = add("empty", {0, 8});
  seal();
  Pass pass = begin();
  {
    const Lease lease = fetch(pass, {empty});
    EXPECT_EQ(lease[empty].elements, 0U);
  }
  give(pass, empty, {});
  EXPECT_EQ(step(pass).norm, 0);
  EXPECT_EQ(count(empty), 1U);
  EXPECT_THAT(read(empty), testing::IsEmpty());
  EXPECT_THAT(engine->write(empty, View::kMaster, {0, 0}, nullptr, DType::kF32), IsOk());
}

TEST_F(Parameters, ScalarsHaveOneElement) {
  const ParameterId scalar = add("scalar", {}, {.optimizer = sim::kShowsGradient});
  seal();
  train(scalar, {3});
  EXPECT_THAT(read(scalar, View::kMoment1), testing::ElementsAre(3));
}

TEST_F(Parameters, NoneAtAllMakeAnEngineToo) {
  make();
  seal();
  Pass pass = begin();
  EXPECT_EQ(step(pass).step, 1U);
  EXPECT_THAT(engine->close(), IsOk());
}

TEST_F(Parameters, FirstValuesAreTheInitials) {
  const ParameterId constant = add("constant", {300}, {}, Constant{0.1F});
  const ParameterId zeros = add("zeros", {300}, {.policy = Policy::kFp32}, Zeros{});
  const ParameterId normal = add("normal", {dim(2 * kChunk)}, {.policy = Policy::kFp32}, Normal{2, 0.5F});
  seal();
  EXPECT_THAT(read(constant), Each(0.1F));
  EXPECT_THAT(read(zeros), Each(0.0F));
  double sum = 0, squares = 0;
  for (const float value : read(normal)) {
    sum += value;
    squares += (value - 2.0) * (value - 2.0);
  }
  EXPECT_NEAR(sum / (2 * kChunk), 2, 0.02);
  EXPECT_NEAR(squares / (2 * kChunk), 0.25, 0.01);
}

TEST_F(Parameters, NormalValuesDependOnNeitherOrderNorChunks) {
  const auto values_of = [this](std::uint32_t chunk_elements, bool alone) {
    options.chunk_elements = chunk_elements;
    make();
    if (!alone) add("before", {1000});
    const ParameterId parameter = add("it", {dim(3 * kChunk)}, {}, Normal{});
    seal();
    return read(parameter);
  };
  const Values values = values_of(kChunk, true);
  EXPECT_EQ(values_of(kChunk, false), values);
  EXPECT_EQ(values_of(4 * kChunk, false), values);
  options.seed = 1;
  EXPECT_NE(values_of(kChunk, true), values);
}

TEST_F(Parameters, AFailingInitialCallbackFailsSealByName) {
  add("a", {dim(2 * kChunk)}, {},
      InitialCallback([](Range, DType, void*) { return Status(Code::kNotFound, "no such file"); }));
  EXPECT_THAT(engine->seal(), Fails(Code::kNotFound, AllOf(HasSubstr("'a'"), HasSubstr("no such file"))));
  EXPECT_TRUE(std::filesystem::is_empty(house.directory.path()));
}

TEST_F(Parameters, NamesAreTakenOnce) {
  const ParameterId first = add("a", {1});
  EXPECT_THAT(engine->add_parameter({.name = "a", .shape = {1}, .group = {0}, .initial = Zeros{}}),
              Fails(Code::kAlreadyExists, HasSubstr("'a'")));
  EXPECT_THAT(engine->add_alias("a", first), Fails(Code::kAlreadyExists, HasSubstr("'a'")));
  EXPECT_THAT(engine->add_alias("b", ParameterId{7}), Fails(Code::kInvalidArgument, HasSubstr("7")));
}

class Ties : public sim::EngineTest {
 protected:
  ParameterId embedding_ = add("embedding", {300}, {.optimizer = sim::kShowsGradient});
  ParameterId head_ = tie("head", embedding_);
};

TEST_F(Ties, AddTheGradientsOfBothNames) {
  seal();
  Pass pass = begin();
  give(pass, embedding_, Values(300, 1));
  give(pass, head_, Values(300, 2));
  EXPECT_EQ(step(pass).norm, 3 * std::sqrt(300.0));
  EXPECT_THAT(read(embedding_, View::kMoment1), Each(3.0F));
  EXPECT_EQ(count(embedding_), 1U);
  EXPECT_EQ(count(head_), 1U);
}

TEST_F(Ties, ShareWeightsAndCountOnceInAFetch) {
  options.max_fetch_bytes = 512 * 2;  // room for one of them
  seal();
  Pass pass = look();
  const Lease lease = fetch(pass, {embedding_, head_});
  EXPECT_EQ(lease[head_].data, lease[embedding_].data);
  EXPECT_EQ(lease[head_].elements, 300U);
}

TEST_F(Ties, AreRefusedWhereOnlyOneGradientIsTaken) {
  const ParameterId once = add("once", {1}, {.gradient = GradientStorage::kBf16Once});
  EXPECT_THAT(engine->add_alias("again", once),
              Fails(Code::kInvalidArgument, AllOf(HasSubstr("'again'"), HasSubstr("'once'"))));
}

class Frozen : public sim::EngineTest, public testing::WithParamInterface<DType> {
 protected:
  /// Element i is the byte pattern of i, whatever the dtype.
  static Status fill(Range range, DType dtype, void* target) {
    for (std::uint64_t i = 0; i < range.count; ++i) {
      const std::uint64_t value = (range.first + i) % 250;
      std::memcpy(static_cast<std::byte*>(target) + i * dtype_bytes(dtype), &value, dtype_bytes(dtype));
    }
    return {};
  }
};

TEST_P(Frozen, WeightsOfEveryDTypeAreServedAsTheCallbackGaveThem) {
  const DType dtype = GetParam();
  const ParameterId parameter =
      add("table", {dim(2 * kChunk) + 5}, {.policy = Policy::kFrozen, .frozen_dtype = dtype}, fill);
  seal();
  Pass pass = look();
  const Lease lease = fetch(pass, {parameter});
  EXPECT_EQ(lease[parameter].dtype, dtype);
  std::vector<std::byte> expected(lease[parameter].elements * dtype_bytes(dtype));
  ASSERT_THAT(fill({0, lease[parameter].elements}, dtype, expected.data()), IsOk());
  EXPECT_EQ(std::memcmp(lease[parameter].data, expected.data(), expected.size()), 0);
}
INSTANTIATE_TEST_SUITE_P(DTypes, Frozen,
                         testing::Values(DType::kBF16, DType::kF32, DType::kF16, DType::kU8, DType::kI32,
                                         DType::kI64));

TEST_F(Frozen, TakesNoGradientAndNeedsNoStepFrames) {
  const ParameterId parameter = add("a", {dim(3 * kChunk)}, {.policy = Policy::kFrozen});
  options.host_budget_bytes = 2 * kChunk * 2;
  make();
  ASSERT_EQ(add("a", {dim(3 * kChunk)}, {.policy = Policy::kFrozen}), parameter);
  EXPECT_EQ(seal().host_bytes, 2 * kChunk * 2);
  Pass pass = begin();
  const float value = 1;
  EXPECT_THAT(pass.add_gradient(parameter, Gradient::f32(&value)),
              Fails(Code::kFailedPrecondition, AllOf(HasSubstr("'a'"), HasSubstr("frozen"))));
}

TEST_F(Frozen, HasNoOtherViewThanItsWeights) {
  const ParameterId parameter = add("a", {8}, {.policy = Policy::kFrozen});
  seal();
  std::uint64_t value = 0;
  for (const View view : {View::kMaster, View::kMoment1, View::kMoment2})
    EXPECT_THAT(engine->read(parameter, view, {0, 1}, &value, DType::kF32),
                Fails(Code::kInvalidArgument, HasSubstr("'a'")));
  EXPECT_THAT(engine->read(parameter, View::kCount, {0, 1}, &value, DType::kU64),
              Fails(Code::kInvalidArgument, HasSubstr("'a'")));
}

TEST_F(Frozen, LeasesStayOpenOverAStep) {
  const ParameterId frozen = add("frozen", {8}, {.policy = Policy::kFrozen});
  const ParameterId trained = add("trained", {8});
  seal();
  Pass pass = begin();
  const Lease lease = fetch(pass, {frozen});
  give(pass, trained, Values(8, 1));
  step(pass);
  EXPECT_EQ(bits(lease[frozen]), std::vector<std::uint16_t>(8, 0x3f80));
}

class Fetches : public sim::EngineTest {
 protected:
  Fetches() { options.max_fetch_bytes = 2 * kChunk * 2; }
  ParameterId a_ = add("a", {dim(kChunk)}, {}, Normal{});
  ParameterId b_ = add("b", {dim(kChunk)}, {}, Normal{});
  ParameterId c_ = add("c", {dim(kChunk)}, {}, Normal{});
};

TEST_F(Fetches, OfOneParameterTwiceInTheListCountOnce) {
  make();
  add("a", {dim(kChunk)});
  options.max_fetch_bytes = kChunk * 2;
  seal();
  Pass pass = look();
  const Lease lease = fetch(pass, {a_, a_, a_});
  EXPECT_NE(lease[a_].data, nullptr);
}

TEST_F(Fetches, BeyondMaxFetchFailAtOnceNamingTheLeasesAndWorkAfterADrop) {
  make();
  for (const char* name : {"a", "b", "c"}) add(name, {dim(kChunk)});
  seal();
  Pass pass = look();
  Lease held = fetch(pass, {a_, b_});
  const auto refused = pass.fetch(std::vector{c_});
  EXPECT_THAT(refused,
              Fails(Code::kResourceExhausted, AllOf(HasSubstr("max_fetch_bytes 65536"),
                                                    HasSubstr("'a' and 1 more"), HasSubstr("65536 bytes)"))));
  held.release();
  EXPECT_THAT(pass.fetch(std::vector{c_}), IsOk());
}

TEST_F(Fetches, ThatFailHoldNothing) {
  make();
  for (const char* name : {"a", "b", "c"}) add(name, {dim(kChunk)});
  seal();
  Pass pass = look();
  EXPECT_THAT(pass.fetch(std::vector{a_, b_, c_}), Fails(Code::kResourceExhausted, HasSubstr("nothing")));
  EXPECT_THAT(pass.fetch(std::vector{a_, b_}), IsOk());
  EXPECT_THAT(pass.end(), IsOk());
}

TEST_F(Fetches, OfHeldParametersNeedNoMoreRoom) {
  make();
  for (const char* name : {"a", "b", "c"}) add(name, {dim(kChunk)});
  seal();
  Pass pass = look();
  const Lease first = fetch(pass, {a_, b_});
  const Lease second = fetch(pass, {b_, a_});
  EXPECT_EQ(first[a_].data, second[a_].data);
}

TEST_F(Fetches, ShowTheSameBytesInAnyOrderAndAgain) {
  options.device_budget_bytes = options.max_fetch_bytes;  // everything is evicted in turn
  make();
  for (const char* name : {"a", "b", "c"}) add(name, {dim(kChunk)}, {}, Normal{});
  seal();
  std::map<std::uint32_t, std::vector<std::uint16_t>> seen;
  Pass pass = look();
  for (const ParameterId parameter : {a_, b_, c_, c_, a_, b_, a_, c_, b_}) {
    const Lease lease = fetch(pass, {parameter});
    const auto now = bits(lease[parameter]);
    const auto [first, inserted] = seen.emplace(parameter.index, now);
    EXPECT_EQ(first->second, now);
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST_F(Fetches, OfForeignIdsAreRefusedAndLeasesShowNothingForThem) {
  seal();
  Pass pass = look();
  EXPECT_THAT(pass.fetch(std::vector{ParameterId{9}}), Fails(Code::kInvalidArgument, HasSubstr("9")));
  const Lease lease = fetch(pass, {a_});
  EXPECT_EQ(lease[b_].data, nullptr);
  EXPECT_EQ(lease[ParameterId{9}].data, nullptr);
}

TEST_F(Fetches, OfNothingGiveAnEmptyLease) {
  seal();
  Pass pass = look();
  EXPECT_THAT(pass.fetch({}), IsOk());
  EXPECT_THAT(pass.end(), IsOk());
}

TEST_F(Fetches, OnAForeignStreamAreRefused) {
  seal();
  Pass pass = look();
  int nobody = 0;
  EXPECT_THAT(pass.fetch(std::vector{a_}, Stream{&nobody}),
              Fails(Code::kInvalidArgument, HasSubstr("stream")));
}

TEST_F(Fetches, LeasesMoveAndReleaseOnce) {
  seal();
  Pass pass = look();
  Lease first = fetch(pass, {a_});
  Lease second = std::move(first);
  EXPECT_EQ(first[a_].data, nullptr);  // NOLINT: what a moved-from lease shows is the point
  EXPECT_NE(second[a_].data, nullptr);
  EXPECT_THAT(pass.end(), Not(IsOk()));
  second = Lease();
  second.release();
  EXPECT_THAT(pass.end(), IsOk());
}

}  // namespace
}  // namespace sluice
