// The same gradients through torch.optim and through the kernels: fp32 planes, fifty steps, parameters of several
// shapes. Both compute the same formula in fp32 in another order, so each is within a running bound of its value in
// double (bounded.hpp), and they are within twice that of each other.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bounded.hpp"
#include "each_isa.hpp"
#include "kernels/update.hpp"
#include "support/shell.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::kernels {
namespace {

constexpr std::size_t kSteps = 50;
constexpr const char* kShapes = "1,7,16x16,5x3x9,1000,4099";
constexpr std::size_t kElements[] = {1, 7, 256, 135, 1000, 4099};
constexpr std::size_t kAll = 1 + 7 + 256 + 135 + 1000 + 4099;

struct Case {
  const char* name;
  Optimizer optimizer;
};

const Case kCases[] = {
    {"AdamW", AdamW{}},
    {"AdamWWithAShortMemory", AdamW{.lr = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1}},
    {"AdamWWithoutMomentum", AdamW{.lr = 1e-2, .beta1 = 0, .eps = 1e-4}},
    {"Adam", Adam{}},
    {"AdamWithDecay", Adam{.lr = 1e-2, .weight_decay = 0.1}},
    {"Adagrad", Adagrad{}},
    {"AdagradWithBothDecays", Adagrad{.lr = 0.1, .lr_decay = 0.01, .weight_decay = 0.1}},
    {"Sgd", Sgd{.lr = 1e-2}},
    {"SgdWithDecay", Sgd{.lr = 1e-2, .weight_decay = 0.1}},
    {"SgdWithMomentum", Sgd{.lr = 1e-2, .momentum = 0.9}},
    {"SgdWithDampeningAndDecay", Sgd{.lr = 1e-2, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1}},
    {"SgdWithNesterov", Sgd{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}};

/// First values, then gradients of every step: of all magnitudes, some of them zero for a while.
std::vector<float> make_input(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> input(kAll);
  std::vector<float> scales(kAll);
  for (std::size_t i = 0; i < kAll; ++i) {
    input[i] = normal(random);
    scales[i] = std::pow(10.0f, 2 * normal(random));
  }
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kAll; ++i) {
      const float gradient = scales[i] * (normal(random) + 0.2f);
      input.push_back(i % 13 == 0 && step < 10 ? 0.0f : gradient);
    }
  }
  return input;
}

/// One element's rule, with the bound of what any fp32 computation of it makes.
struct Reference {
  Bounded p, m, v;
  std::uint64_t steps = 0;

  void step(const Optimizer& optimizer, double gradient) {
    ++steps;
    std::visit([&](const auto& rule) { step_by(rule, {gradient, 0}); }, optimizer);
  }

  Bounded with_decay(double weight_decay, const Bounded& g) const {
    return weight_decay == 0 ? g : sum(g, scaled(weight_decay, p));
  }
  void step_by_moments(double lr, double beta1, double beta2, double eps, const Bounded& g) {
    const auto t = static_cast<double>(steps);
    m = blended(beta1, m, g);
    v = sum(scaled(beta2, v), scaled(1 - beta2, square(g)));
    const Bounded denominator =
        sum(scaled(1 / std::sqrt(1 - std::pow(beta2, t)), root(v)), {eps, kRounding * eps});
    p = sum(p, scaled(-lr / (1 - std::pow(beta1, t)), quotient(m, denominator)));
  }
  void step_by(const AdamW& rule, const Bounded& g) {
    p = scaled(1 - rule.lr * rule.weight_decay, p);
    step_by_moments(rule.lr, rule.beta1, rule.beta2, rule.eps, g);
  }
  void step_by(const Adam& rule, const Bounded& g) {
    step_by_moments(rule.lr, rule.beta1, rule.beta2, rule.eps, with_decay(rule.weight_decay, g));
  }
  void step_by(const Adagrad& rule, const Bounded& gradient) {
    const Bounded g = with_decay(rule.weight_decay, gradient);
    const double rate = rule.lr / (1 + static_cast<double>(steps - 1) * rule.lr_decay);
    v = sum(v, square(g));
    p = sum(p, scaled(-rate, quotient(g, sum(root(v), {rule.eps, kRounding * rule.eps}))));
  }
  void step_by(const Sgd& rule, const Bounded& gradient) {
    const Bounded g = with_decay(rule.weight_decay, gradient);
    m = steps == 1 || rule.momentum == 0 ? g : sum(scaled(rule.momentum, m), scaled(1 - rule.dampening, g));
    p = sum(p, scaled(-rule.lr, rule.nesterov ? sum(g, scaled(rule.momentum, m)) : m));
  }
  void step_by(const Lion&, const Bounded&) { FAIL() << "torch has no Lion"; }
};

/// Fp32 planes of all parameters, stepped parameter by parameter.
struct State {
  std::vector<float> p, m = std::vector<float>(kAll), v = std::vector<float>(kAll);
  std::uint64_t steps = 0;

  explicit State(const std::vector<float>& input) : p(input.begin(), input.begin() + kAll) {}
  void step(const Optimizer& optimizer, const float* gradient) {
    const Factors factors = make_factors(optimizer, ++steps, 1);
    std::size_t first = 0;
    for (const std::size_t elements : kElements) {
      Run run{.policy = Policy::kFp32,
              .gradient = reinterpret_cast<const std::byte*>(gradient + first),
              .elements = elements};
      at(run.planes, Plane::kWeight) = reinterpret_cast<std::byte*>(&p[first]);
      const Moments kept = kind_of(optimizer).moments;
      if (kept != Moments::kSecond) at(run.planes, Plane::kMoment1) = reinterpret_cast<std::byte*>(&m[first]);
      if (kept != Moments::kFirst) at(run.planes, Plane::kMoment2) = reinterpret_cast<std::byte*>(&v[first]);
      update(run, factors);
      first += elements;
    }
  }
};

std::string numbers_text(const Optimizer& optimizer) {
  std::string text;
  for (const OptimizerNumber& number : kind_of(optimizer).numbers) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", number.name, number.get(optimizer));
  }
  return text;
}

/// All cases through torch, once for all tests: starting it takes longer than they do.
class Torch : public testing::Test {
 protected:
  static constexpr std::uint64_t kSeed = 20'240'601;

  static void SetUpTestSuite() {
    const char* const chosen = std::getenv("SLUICE_PYTHON");
    const std::string script = fmt::format("'{}' '{}/torch_steps.py' ",
                                           chosen == nullptr ? "python3" : chosen, SLUICE_KERNEL_TESTS_DIR);
    const sim::ShellAnswer probe = sim::run_in_shell(script + "probe");
    why_not_ = probe.ok ? "" : "torch cannot be used: " + probe.text;
    if (!probe.ok) return;
    const sim::TemporaryDirectory directory;
    input_ = make_input(kSeed);
    std::ofstream(directory.path() + "/input", std::ios::binary)
        .write(reinterpret_cast<const char*>(input_.data()),
               static_cast<std::streamsize>(input_.size() * sizeof(float)));
    std::ofstream jobs(directory.path() + "/jobs");
    for (const Case& each : kCases) {
      jobs << "input " << each.name << ' ' << kSteps << ' ' << kind_of(each.optimizer).name << ' '
           << numbers_text(each.optimizer) << ' ' << kShapes << '\n';
    }
    jobs.close();
    const sim::ShellAnswer ran = sim::run_in_shell("cd '" + directory.path() + "' && " + script + "run jobs");
    ASSERT_TRUE(ran.ok) << ran.text;
    for (const Case& each : kCases) {
      std::ifstream file(directory.path() + "/" + each.name, std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)), {});
      std::vector<float>& output = outputs_[each.name];
      output.resize(bytes.size() / sizeof(float));
      std::memcpy(output.data(), bytes.data(), output.size() * sizeof(float));
    }
    version_ = ran.text;
  }
  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
  }
  void TearDown() override { force_isa_for_test({}); }

  static inline std::string why_not_;
  static inline std::string version_;
  static inline std::vector<float> input_;
  static inline std::map<std::string, std::vector<float>> outputs_;
};

/// The largest part of their bounds that differences take.
class WorstPart {
 public:
  void take(const char* what, std::size_t i, float ours, float theirs, const Bounded& bounded) {
    const double difference = std::abs(static_cast<double>(ours) - static_cast<double>(theirs));
    const double part = difference / (2 * bounded.error);
    EXPECT_LE(part, 1) << what << " of element " << i << ": ours " << ours << ", theirs " << theirs
                       << ", in double " << bounded.value << " within " << bounded.error;
    worst_ = std::max(worst_, part);
  }
  double worst() const { return worst_; }

 private:
  double worst_ = 0;
};

void expect_alike(const Case& each, const std::vector<float>& input, const std::vector<float>& theirs) {
  const Optimizer& optimizer = each.optimizer;
  const bool torch_keeps_first =
      kind_of(optimizer).moments != Moments::kSecond &&
      !(std::holds_alternative<Sgd>(optimizer) && std::get<Sgd>(optimizer).momentum == 0);
  const bool keeps_second = kind_of(optimizer).moments != Moments::kFirst;
  ASSERT_EQ(theirs.size(), (kSteps + (torch_keeps_first ? 1 : 0) + (keeps_second ? 1 : 0)) * kAll);
  for (const Isa isa : isas_available()) {
    SCOPED_TRACE(isa_name(isa));
    force_isa_for_test(isa);
    State ours(input);
    std::vector<Reference> references(kAll);
    for (std::size_t i = 0; i < kAll; ++i) references[i].p = {input[i], 0};
    WorstPart worst;
    for (std::size_t step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step + 1);
      const float* const gradient = &input[(step + 1) * kAll];
      ours.step(optimizer, gradient);
      for (std::size_t i = 0; i < kAll; ++i) {
        references[i].step(optimizer, static_cast<double>(gradient[i]));
        worst.take("weight", i, ours.p[i], theirs[step * kAll + i], references[i].p);
      }
    }
    std::size_t plane = kSteps;
    if (torch_keeps_first) {
      for (std::size_t i = 0; i < kAll; ++i)
        worst.take("moment1", i, ours.m[i], theirs[plane * kAll + i], references[i].m);
      ++plane;
    }
    if (keeps_second) {
      for (std::size_t i = 0; i < kAll; ++i)
        worst.take("moment2", i, ours.v[i], theirs[plane * kAll + i], references[i].v);
    }
    testing::Test::RecordProperty(fmt::format("worst_part_of_bound_{}_{}", each.name, isa_name(isa)),
                                  std::to_string(worst.worst()));
  }
}

TEST_F(Torch, StepsFiftyTimesAlike) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(testing::Message() << each.name << ", seed " << kSeed << ", " << version_);
    expect_alike(each, input_, outputs_.at(each.name));
    force_isa_for_test({});
  }
}

// A rule that differs in one number must not pass for the same.
std::size_t told_apart(const Case& each, const std::vector<float>& input, const std::vector<float>& theirs) {
  Optimizer other = each.optimizer;
  const OptimizerNumber& lr = kind_of(other).numbers.front();
  lr.set(other, lr.get(other) * 1.001);
  State ours(input);
  std::vector<Reference> references(kAll);
  for (std::size_t i = 0; i < kAll; ++i) references[i].p = {input[i], 0};
  std::size_t apart = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const float* const gradient = &input[(step + 1) * kAll];
    ours.step(other, gradient);
    for (std::size_t i = 0; i < kAll; ++i) {
      references[i].step(each.optimizer, static_cast<double>(gradient[i]));
      const double difference =
          std::abs(static_cast<double>(ours.p[i]) - static_cast<double>(theirs[step * kAll + i]));
      apart += step + 1 == kSteps && difference > 2 * references[i].p.error;
    }
  }
  return apart;
}

TEST_F(Torch, BoundTellsAnotherRateApart) {
  for (const Case& each : kCases)
    EXPECT_GT(told_apart(each, input_, outputs_.at(each.name)), kAll / 4) << each.name;
}

}  // namespace
}  // namespace sluice::kernels
