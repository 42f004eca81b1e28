#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/policy_engine.hpp"

namespace sluice {
namespace {

using sim::IsOk;
using sim::PolicyCase;

/// A parameter that both twins have.
struct Tensor {
  PolicyCase of;
  std::uint64_t elements = 0;
  GradientStorage storage = GradientStorage::kFp32;
};

/// One call within a training pass.
struct Call {
  std::size_t tensor = 0;
  std::uint64_t salt = 0;  // of the gradient's values; 0: none is given
  double scale = 1;
  More more = More::kNo;
  bool bad = false;     // a value is not finite
  bool closes = false;  // no_more_gradients() follows, where updates are made early
  std::optional<Optimizer> renumbers = {};
};

/// One training pass.
struct Script {
  StepOptions numbers;
  std::optional<StepOptions> restated;
  std::vector<Call> calls;
  bool aborts = false;
};

enum class Early { kNo, kYes };

/// An engine in a simulated house of its own, with most of its records on the drive.
class Twin {
 public:
  Twin(std::uint64_t seed, Early early) : early_(early), house_(seed) {}

  void open(const std::vector<Tensor>& tensors) {
    tensors_ = tensors;
    EngineOptions options{.host_budget_bytes = kUnlimited,
                          .device_budget_bytes = kUnlimited,
                          .chunk_elements = 16U << 10,
                          .keep_commits = 0};
    options.directories = {house_.directory.path()};
    seal(options);
    options.host_budget_bytes = report_.least_host_bytes;
    seal(options);
  }

  void run(const Script& script) {
    StepOptions numbers = script.numbers;
    if (early_ == Early::kNo) numbers.micro_batches = 0;
    Result<Pass> pass = engine_->begin_step(numbers);
    ASSERT_THAT(pass, IsOk());
    for (const Call& call : script.calls) make(*pass, call);
    if (script.aborts) {
      EXPECT_THAT(pass->abort(), IsOk());
      return;
    }
    const Result<StepResult> result = script.restated ? pass->step(*script.restated) : pass->step();
    ASSERT_THAT(result, IsOk());
    result_ = *result;
  }

  std::vector<std::vector<float>> state() const {
    std::vector<std::vector<float>> all;
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const Tensor& of = tensors_[tensor];
      for (const View view : of.of.views()) {
        std::vector<float>& values = all.emplace_back(of.elements);
        EXPECT_THAT(engine_->read(it_[tensor], view, {0, of.elements}, values.data(), DType::kF32), IsOk());
      }
      std::uint64_t count = 0;
      EXPECT_THAT(engine_->read(it_[tensor], View::kCount, {0, 1}, &count, DType::kU64), IsOk());
      all.push_back({static_cast<float>(count)});
    }
    return all;
  }
  const StepResult& result() const { return result_; }
  Stats stats() const { return engine_->stats(); }

 private:
  void seal(const EngineOptions& options) {
    engine_.reset();
    Result<std::unique_ptr<Engine>> made = house_.make_engine(options);
    ASSERT_THAT(made, IsOk());
    engine_ = std::move(made).value();
    it_.clear();
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const Tensor& of = tensors_[tensor];
      const Result<GroupId> group = engine_->add_group({.name = fmt::format("t{}", tensor),
                                                        .policy = of.of.policy,
                                                        .optimizer = of.of.optimizer,
                                                        .gradient = of.storage,
                                                        .communicator = {}});
      ASSERT_THAT(group, IsOk());
      const Result<ParameterId> added =
          engine_->add_parameter({.name = fmt::format("t{}", tensor),
                                  .shape = {static_cast<std::int64_t>(of.elements)},
                                  .group = *group,
                                  .initial = Constant{0.5}});
      ASSERT_THAT(added, IsOk());
      it_.push_back(*added);
    }
    const Result<SealReport> report = engine_->seal();
    ASSERT_THAT(report, IsOk());
    report_ = *report;
  }

  void make(Pass& pass, const Call& call) {
    if (call.salt != 0) {
      std::vector<float> values = sim::some_values(tensors_[call.tensor].elements, call.salt);
      for (float& value : values) value *= static_cast<float>(call.scale);
      if (call.bad) values.back() = NAN;
      Gradient gradient = Gradient::f32(values.data());
      gradient.more = call.more;
      EXPECT_THAT(pass.add_gradient(it_[call.tensor], gradient), IsOk());
    }
    if (call.renumbers) {
      tensors_[call.tensor].of.optimizer = *call.renumbers;
      renumber(call.tensor);
    }
    if (early_ == Early::kNo) return;
    if (call.closes) {
      EXPECT_THAT(pass.no_more_gradients(it_[call.tensor]), IsOk());
    }
    for (std::uint64_t turns = house_.world.below(12); turns > 0; --turns) {
      house_.world.step();
      renumber(0);  // with what it has: a call that turns the loop
    }
  }
  void renumber(std::size_t tensor) {
    EXPECT_THAT(engine_->update_group({static_cast<std::uint32_t>(tensor)}, tensors_[tensor].of.optimizer),
                IsOk());
  }

  const Early early_;
  sim::SimHouse house_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<Engine> engine_;
  std::vector<ParameterId> it_;
  SealReport report_;
  StepResult result_;
};

/// Draws what twins are made of and what they go through.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::vector<Tensor> tensors(const PolicyCase& first) {
    constexpr std::uint64_t kSizes[] = {1, 256, 1000, 16384, 20000, 40000};
    const std::vector<PolicyCase> cases = sim::policy_cases();
    std::vector<Tensor> all;
    for (std::uint64_t left = 3 + below(4); left > 0; --left)
      all.push_back({.of = all.size() < 2 ? first : cases[below(cases.size())],
                     .elements = all.empty() ? 70000 : kSizes[below(std::size(kSizes))],
                     .storage = chance(0.2) ? GradientStorage::kBf16Once : GradientStorage::kFp32});
    return all;
  }

  Script script(const std::vector<Tensor>& tensors) {
    const auto micro_batches = static_cast<std::uint32_t>(1 + below(2));
    Script script;
    script.numbers = {.loss_scale = chance(0.5) ? 64.0 : 1.0,
                      .gradient_divisor = static_cast<double>(micro_batches),
                      .micro_batches = chance(0.2) ? 0 : micro_batches};
    script.aborts = chance(0.1);
    if (chance(0.1)) {
      script.restated = script.numbers;
      script.restated->loss_scale *= 2;
    }
    for (std::uint32_t micro = 0; micro < micro_batches; ++micro) contribute(script, tensors, micro);
    if (chance(0.1)) script.numbers.max_norm = std::array{0.01, 1.0, 60.0}[below(3)];
    if (script.calls.empty()) return script;
    script.calls.back().bad = chance(0.1);
    if (chance(0.1)) renumber(script.calls[below(script.calls.size())], tensors);
    close(script, tensors);
    return script;
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool chance(double probability) { return static_cast<double>(random_() >> 11) * 0x1p-53 < probability; }

  void contribute(Script& script, const std::vector<Tensor>& tensors, std::uint32_t micro) {
    for (std::size_t tensor = tensors.size(); tensor-- > 0;) {
      const bool once = tensors[tensor].storage == GradientStorage::kBf16Once;
      if ((once && micro > 0) || chance(0.1)) continue;
      const auto give = [&](More more) {
        script.calls.push_back(
            {.tensor = tensor, .salt = 1 + below(1000), .scale = script.numbers.loss_scale, .more = more});
      };
      if (!once && chance(0.1)) give(More::kYes);
      give(More::kNo);
      if (!once && chance(0.1)) give(More::kNo);  // more than is expected
    }
  }
  void renumber(Call& call, const std::vector<Tensor>& tensors) {
    call.renumbers = tensors[call.tensor].of.optimizer;
    std::visit([](auto& rule) { rule.lr *= 0.5; }, *call.renumbers);
  }
  /// Some tensors, after their last gradient or before anything.
  void close(Script& script, const std::vector<Tensor>& tensors) {
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      if (!chance(0.3)) continue;
      const auto last = std::find_if(script.calls.rbegin(), script.calls.rend(),
                                     [&](const Call& call) { return call.tensor == tensor; });
      if (last != script.calls.rend())
        last->closes = true;
      else
        script.calls.insert(script.calls.begin(), {.tensor = tensor, .closes = true});
    }
  }

  std::mt19937_64 random_;
};

class EarlyTwins : public testing::TestWithParam<PolicyCase> {};

TEST_P(EarlyTwins, OneOfWhichIsUpdatedDuringBackwardStayEqualBitForBit) {
  Stats met;
  const std::uint64_t first = std::hash<std::string>()(GetParam().name()) % 100'000;
  for (std::uint64_t life = 0; life < 8; ++life) {
    const std::uint64_t seed = sim::seed_or(first + life);
    SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={}", seed));
    Draw draw(seed);
    const std::vector<Tensor> tensors = draw.tensors(GetParam());
    Twin early(seed, Early::kYes), serial(seed, Early::kNo);
    early.open(tensors);
    serial.open(tensors);
    if (HasFatalFailure()) return;
    for (int step = 0; step < 5; ++step) {
      const Script script = draw.script(tensors);
      early.run(script);
      serial.run(script);
      if (HasFailure()) return;
      EXPECT_EQ(early.result().skipped, serial.result().skipped);
      EXPECT_EQ(early.result().norm, serial.result().norm);
      EXPECT_EQ(early.result().step, serial.result().step);
      ASSERT_TRUE(early.state() == serial.state()) << "after step " << step;
    }
    met.early_updates += early.stats().early_updates;
    met.redone_updates += early.stats().redone_updates;
    EXPECT_EQ(serial.stats().early_updates, 0U);
  }
  if (std::getenv("SLUICE_TEST_SEED") == nullptr) {
    EXPECT_GT(met.early_updates, 0U);
  }
  RecordProperty("met", fmt::format("early {}, redone {}", met.early_updates, met.redone_updates));
}
INSTANTIATE_TEST_SUITE_P(Policies, EarlyTwins, testing::ValuesIn(sim::policy_cases()), sim::name_of);

}  // namespace
}  // namespace sluice
