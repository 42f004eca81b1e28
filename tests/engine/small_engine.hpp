#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/sim_engine.hpp"
#include "sluice/sluice.hpp"

namespace sluice::sim {

inline const Status& status_of(const Status& status) { return status; }
template <class T>
const Status& status_of(const Result<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is ok") {
  *result_listener << status_of(arg).to_string();
  return status_of(arg).ok();
}
MATCHER_P2(Fails, code, message, "") {
  const Status& status = status_of(arg);
  *result_listener << status.to_string();
  return status.code() == code && testing::ExplainMatchResult(message, status.message(), result_listener);
}

/// AdamW whose first moment is the gradient as it was used: unscaled, divided, clipped.
inline constexpr AdamW kShowsGradient{.lr = 1e-2, .beta1 = 0, .weight_decay = 0};

/// An engine over simulated parts and the few verbs that its tests are made of. Each parameter has a group of
/// its own.
class EngineTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kChunk = 16 << 10;  // elements
  using Values = std::vector<float>;

  EngineTest() {
    options.directories = {house.directory.path()};
    options.host_budget_bytes = kUnlimited;
    options.device_budget_bytes = kUnlimited;
    options.chunk_elements = kChunk;
    options.keep_commits = 0;
  }
  ~EngineTest() override { engine.reset(); }  // before the house that it lives in

  void make() {
    engine.reset();
    elements_.clear();
    Result<std::unique_ptr<Engine>> made = house.make_engine(options);
    ASSERT_THAT(made, IsOk());
    engine = std::move(made).value();
  }

  ParameterId add(std::string name, std::vector<std::int64_t> shape, GroupOptions group = {},
                  Initial initial = Constant{1}, Residency residency = Residency::kPlanned) {
    if (!engine) make();
    std::uint64_t elements = 1;
    for (std::int64_t extent : shape) elements *= static_cast<std::uint64_t>(extent);
    const Result<GroupId> made = engine->add_group(std::move(group));
    EXPECT_THAT(made, IsOk());
    const Result<ParameterId> parameter = engine->add_parameter({.name = std::move(name),
                                                                 .shape = std::move(shape),
                                                                 .group = made.ok() ? *made : GroupId{},
                                                                 .initial = std::move(initial),
                                                                 .residency = residency});
    EXPECT_THAT(parameter, IsOk());
    if (!parameter.ok()) return {};
    elements_[parameter->index] = elements;
    return *parameter;
  }
  ParameterId tie(std::string name, ParameterId parameter) {
    const Result<ParameterId> alias = engine->add_alias(std::move(name), parameter);
    EXPECT_THAT(alias, IsOk());
    return alias.ok() ? *alias : ParameterId{};
  }
  SealReport seal() {
    const Result<SealReport> report = engine->seal();
    EXPECT_THAT(report, IsOk());
    return report.ok() ? *report : SealReport{};
  }

  Pass begin(StepOptions step_options = {}) {
    Result<Pass> pass = engine->begin_step(step_options);
    EXPECT_THAT(pass, IsOk());
    return pass.ok() ? std::move(pass).value() : Pass();
  }
  Pass look(std::string_view phase = "look") {
    Result<Pass> pass = engine->begin_pass(phase);
    EXPECT_THAT(pass, IsOk());
    return pass.ok() ? std::move(pass).value() : Pass();
  }
  static Lease fetch(Pass& pass, std::vector<ParameterId> parameters) {
    Result<Lease> lease = pass.fetch(parameters);
    EXPECT_THAT(lease, IsOk());
    return lease.ok() ? std::move(lease).value() : Lease();
  }
  static void give(Pass& pass, ParameterId parameter, const Values& values, More more = More::kNo) {
    Gradient gradient = Gradient::f32(values.data());
    gradient.more = more;
    EXPECT_THAT(pass.add_gradient(parameter, gradient), IsOk());
  }
  static StepResult step(Pass& pass) {
    const Result<StepResult> result = pass.step();
    EXPECT_THAT(result, IsOk());
    return result.ok() ? *result : StepResult{};
  }
  /// A whole step with one gradient.
  StepResult train(ParameterId parameter, const Values& values, StepOptions step_options = {}) {
    Pass pass = begin(step_options);
    give(pass, parameter, values);
    return step(pass);
  }

  Values read(ParameterId parameter, View view = View::kMaster) const {
    Values values(elements_.at(parameter.index));
    EXPECT_THAT(engine->read(parameter, view, {0, values.size()}, values.data(), DType::kF32), IsOk());
    return values;
  }
  std::uint64_t count(ParameterId parameter) const {
    std::uint64_t steps = ~std::uint64_t{0};
    EXPECT_THAT(engine->read(parameter, View::kCount, {0, 1}, &steps, DType::kU64), IsOk());
    return steps;
  }
  /// Every bit of a trained parameter's state, and its count.
  std::vector<Values> state(ParameterId parameter) const {
    return {read(parameter, View::kWeight), read(parameter, View::kMaster), read(parameter, View::kMoment1),
            read(parameter, View::kMoment2), Values{static_cast<float>(count(parameter))}};
  }
  /// What a fetch shows of bf16 weights, as bits.
  static std::vector<std::uint16_t> bits(const ConstTensor& tensor) {
    std::vector<std::uint16_t> values(tensor.elements);
    if (!values.empty()) std::memcpy(values.data(), tensor.data, values.size() * 2);
    return values;
  }

  SimHouse house{seed_or(1)};
  EngineOptions options;
  std::unique_ptr<Engine> engine;

 private:
  std::map<std::uint32_t, std::uint64_t> elements_;
};

/// A count of elements as a dimension of a shape.
inline std::int64_t dim(std::uint64_t elements) { return static_cast<std::int64_t>(elements); }

}  // namespace sluice::sim
