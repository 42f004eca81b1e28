#include <fmt/format.h>

#include "engine/small_engine.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::IsOk;
using testing::Each;

/// Eight parameters of a chunk each, none resident.
class ReadAhead : public sim::EngineTest {
 protected:
  static constexpr std::uint64_t kOne = kChunk * 2;  // weight bytes of a parameter
  static constexpr std::uint64_t kCount = 8;
  /// Three records, all gradients and this many weight planes; too little for a resident record.
  static constexpr std::uint64_t host_bytes(std::uint64_t weights) {
    return 3 * kChunk * 12 + kCount * kChunk * 4 + weights * kOne;
  }

  void open(std::uint64_t device_parameters, Residency residency = Residency::kPlanned,
            GroupOptions group = {}) {
    options.device_budget_bytes = device_parameters * kOne;
    options.max_fetch_bytes = kOne;
    if (options.host_budget_bytes == kUnlimited) options.host_budget_bytes = host_bytes(2);
    make();
    for (std::uint64_t i = 0; i < kCount; ++i)
      parameters_.push_back(add(fmt::format("p{}", i), {dim(kChunk)}, group, Normal{}, residency));
    ASSERT_EQ(seal().resident_chunks, 0U);
  }
  void forward(Pass& pass) {
    for (const ParameterId parameter : parameters_) (void)fetch(pass, {parameter});
  }
  void backward(Pass& pass) {
    for (auto it = parameters_.rbegin(); it != parameters_.rend(); ++it) {
      (void)fetch(pass, {*it});
      give(pass, *it, Values(kChunk, 1));
    }
  }
  void train_once() {
    Pass pass = begin();
    forward(pass);
    backward(pass);
    step(pass);
  }
  std::uint64_t demands() const { return engine->stats().demand_fetches; }
  /// Weights as they are, by way of the state.
  std::vector<std::uint16_t> weights(ParameterId parameter) const {
    std::vector<std::uint16_t> values(kChunk);
    EXPECT_THAT(engine->read(parameter, View::kWeight, {0, kChunk}, values.data(), DType::kBF16), IsOk());
    return values;
  }

  std::vector<ParameterId> parameters_;
};

TEST_F(ReadAhead, InARepeatedPassNoFetchIsADemandWhenDeviceMemoryHasRoom) {
  open(kCount);
  train_once();
  EXPECT_GT(demands(), 0U);
  const std::uint64_t first = demands();
  for (int i = 0; i < 3; ++i) train_once();
  EXPECT_EQ(demands(), first);
}

TEST_F(ReadAhead, RoomForOneMoreIsEnoughToBeAhead) {
  open(2);
  train_once();
  const std::uint64_t first = demands();
  for (int i = 0; i < 3; ++i) train_once();
  EXPECT_EQ(demands(), first);
}

TEST_F(ReadAhead, WithoutRoomForItEveryByteIsRightAllTheSame) {
  open(1);
  for (int i = 0; i < 2; ++i) train_once();
  std::vector<std::vector<std::uint16_t>> expected;
  for (const ParameterId parameter : parameters_) expected.push_back(weights(parameter));
  Pass pass = look();
  for (std::size_t i = 0; i < kCount; ++i) {
    const Lease lease = fetch(pass, {parameters_[i]});
    EXPECT_EQ(bits(lease[parameters_[i]]), expected[i]);
  }
}

TEST_F(ReadAhead, SurprisesAreServedAndThePlanResumes) {
  open(3);
  const auto pass_with = [&](bool surprise) {
    Pass pass = look();
    for (std::size_t i = 0; i < kCount; ++i) {
      if (surprise && i == 4) (void)fetch(pass, {parameters_[1]});
      (void)fetch(pass, {parameters_[i]});
    }
    EXPECT_THAT(pass.end(), IsOk());
  };
  pass_with(false);
  pass_with(false);
  std::uint64_t before = demands();
  pass_with(true);
  EXPECT_LE(demands() - before, 2U);  // the surprise itself, and what it took the room of
  pass_with(false);
  before = demands();
  pass_with(false);
  EXPECT_EQ(demands(), before);
}

TEST_F(ReadAhead, PhasesHaveTracesOfTheirOwn) {
  open(2);
  const auto run = [&](std::string_view phase, bool ascending) {
    Pass pass = look(phase);
    for (std::size_t i = 0; i < kCount; ++i) (void)fetch(pass, {parameters_[ascending ? i : kCount - 1 - i]});
    EXPECT_THAT(pass.end(), IsOk());
  };
  run("up", true);
  run("down", false);
  const std::uint64_t before = demands();
  for (int i = 0; i < 2; ++i) {
    run("down", false);
    run("up", true);
  }
  // A change of phase costs what was on its way for the next repetition; a shared trace would cost nearly all.
  EXPECT_LT(demands() - before, 4 * kCount / 2);
}

TEST_F(ReadAhead, HintsSpareTheFirstPassItsDemands) {
  open(kCount);
  Pass pass = look();
  pass.prefetch(parameters_);
  forward(pass);
  EXPECT_EQ(demands(), 0U);
}

TEST_F(ReadAhead, HintsNeverFail) {
  open(2);
  Pass pass = look();
  pass.prefetch({});
  pass.prefetch(std::vector{ParameterId{99}});
  pass.prefetch(std::vector<ParameterId>(10'000, parameters_[3]));
  pass.prefetch(parameters_);
  forward(pass);
  EXPECT_THAT(pass.end(), IsOk());
  pass.prefetch(parameters_);
  Pass().prefetch(parameters_);
}

TEST_F(ReadAhead, KeptParametersAreReadOnceAndRefreshedByEachStep) {
  open(kCount, Residency::kDevice);
  {
    Pass pass = look();
    forward(pass);
  }
  const std::uint64_t before = engine->stats().device_bytes_in;
  for (int i = 0; i < 3; ++i) {
    Pass pass = look();
    forward(pass);
  }
  EXPECT_EQ(engine->stats().device_bytes_in, before);
  train_once();
  Pass pass = begin();
  std::vector<Lease> leases;
  for (const ParameterId parameter : parameters_) leases.push_back(fetch(pass, {parameter}));
  const std::uint64_t after = engine->stats().device_bytes_in;
  EXPECT_EQ(after - before, kCount * kOne);
  EXPECT_THAT(pass.abort(), IsOk());
  for (std::size_t i = 0; i < kCount; ++i)
    EXPECT_EQ(bits(leases[i][parameters_[i]]), weights(parameters_[i]));
}

TEST_F(ReadAhead, SmallParametersOfAGroupAreKeptByItsOption) {
  open(kCount, Residency::kPlanned, {.keep_gathered_below_bytes = kOne + 1});
  Pass pass = look();
  // All at once although max_fetch_bytes is one of them: kept ones are not counted.
  const Lease lease = fetch(pass, parameters_);
  EXPECT_NE(lease[parameters_[7]].data, nullptr);
  make();
  add("a", {dim(kChunk)}, {.keep_gathered_below_bytes = kOne});
  add("b", {dim(kChunk)}, {.keep_gathered_below_bytes = kOne});
  seal();
  Pass other = look();
  EXPECT_FALSE(other.fetch(std::vector{ParameterId{0}, ParameterId{1}}).ok());
}

TEST_F(ReadAhead, WeightsInHostFramesAreReadOnceForAllMicroBatches) {
  options.host_budget_bytes = host_bytes(kCount);
  open(1);
  Pass pass = begin({.micro_batches = 3});
  forward(pass);
  EXPECT_EQ(engine->stats().weight_bytes_read, kCount * kOne);
  for (int i = 0; i < 2; ++i) {
    backward(pass);
    forward(pass);
  }
  EXPECT_EQ(engine->stats().weight_bytes_read, kCount * kOne);
  step(pass);
  Pass next = begin();
  forward(next);
  EXPECT_EQ(engine->stats().weight_bytes_read, 2 * kCount * kOne);  // they are other weights
}

TEST_F(ReadAhead, WithFewHostFramesEveryReadIsCounted) {
  open(1);
  Pass pass = look();
  for (int i = 0; i < 5; ++i) {
    (void)fetch(pass, {parameters_[0]});
    (void)fetch(pass, {parameters_[0]});
  }
  EXPECT_EQ(engine->stats().weight_bytes_read, kOne);
  forward(pass);
  EXPECT_EQ(engine->stats().weight_bytes_read, kCount * kOne);
}

}  // namespace
}  // namespace sluice
