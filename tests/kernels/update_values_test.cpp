// The values of every rule: against published numbers, a computation in double, and each other.
#include <random>
#include <vector>

#include "each_isa.hpp"
#include "update_cases.hpp"

namespace sluice::kernels {
namespace {

class UpdateValues : public OnEachIsa {};
SLUICE_ON_EACH_ISA(UpdateValues);

constexpr Policy kFp32MomentPolicies[] = {Policy::kFp32, Policy::kBf16Split, Policy::kFp16Master};

struct CheckValues {
  Optimizer optimizer;
  double weights[3];
};

const CheckValues kCheckValues[] = {
    {Adam{.lr = 1e-2}, {0.990000000200, 0.987336629871, 0.983932338492}},
    {AdamW{.lr = 1e-2, .weight_decay = 0.0}, {0.990000000200, 0.987336629871, 0.983932338492}},
    {AdamW{.lr = 1e-2, .weight_decay = 0.1}, {0.989000000200, 0.985347629871, 0.980957990862}}};
constexpr float kCheckGradients[3] = {0.5f, -0.25f, 0.125f};

TEST_P(UpdateValues, AreTheCheckValues) {
  for (const CheckValues& check : kCheckValues) {
    for (const Policy policy : kFp32MomentPolicies) {
      for (const double loss_scale : {1.0, 65536.0}) {
        Planes planes(policy, check.optimizer, 1);
        planes.store({{1.0f, 0.0f, 0.0f}});
        for (std::size_t i = 0; i < 3; ++i) {
          update_planes(planes, policy, {static_cast<float>(kCheckGradients[i] * loss_scale)},
                        make_factors(check.optimizer, i + 1, 1.0 / loss_scale));
          EXPECT_NEAR(planes.masters()[0], check.weights[i], 2e-7) << "step " << i + 1;
        }
      }
    }
  }
}

TEST(UpdateRules, GiveTheCheckValuesToTwelveDigitsInDouble) {
  for (const CheckValues& check : kCheckValues) {
    BoundedElement element{{1.0, 0.0}, {}, {}};
    for (std::size_t i = 0; i < 3; ++i) {
      element = stepped(BoundedMath{}, check.optimizer, i + 1, 1.0, element, Bounded{kCheckGradients[i], 0});
      EXPECT_NEAR(element.weight.value, check.weights[i], 1e-12);
    }
  }
}

// Two steps by hand: g = 1, then -0.5.
TEST_P(UpdateValues, OfRulesWithoutPublishedNumbersAreThoseByHand) {
  struct ByHand {
    Optimizer optimizer;
    double weights[2];
  };
  const ByHand cases[] = {
      // sum 1, 1.25; clr 0.1, 0.1 / 1.5
      {Adagrad{.lr = 0.1, .lr_decay = 0.5}, {0.9, 0.9 + 0.1 / 1.5 * 0.5 / std::sqrt(1.25)}},
      // g = 1 + 0.5 * 1, -0.5 + 0.5 * 0.85
      {Sgd{.lr = 0.1, .weight_decay = 0.5}, {0.85, 0.85 - 0.1 * (-0.5 + 0.5 * 0.85)}},
      // buf 1, 0.9 - 0.8 * 0.5
      {Sgd{.lr = 0.1, .momentum = 0.9, .dampening = 0.2}, {0.9, 0.9 - 0.1 * 0.5}},
      // buf 1, 0.4; d 1 + 0.9, -0.5 + 0.9 * 0.4
      {Sgd{.lr = 0.1, .momentum = 0.9, .nesterov = true}, {0.81, 0.81 + 0.1 * 0.14}},
      // m 0, 0.01; c 0.1, 0.9 * 0.01 - 0.05: signs + and -
      {Lion{.lr = 0.1, .weight_decay = 0.5}, {0.95 - 0.1, 0.85 * 0.95 + 0.1}}};
  for (const ByHand& each : cases) {
    SCOPED_TRACE(kind_of(each.optimizer).name);
    for (const Policy policy : kFp32MomentPolicies) {
      Planes planes(policy, each.optimizer, 1);
      planes.store({{1.0f, 0.0f, 0.0f}});
      for (std::size_t i = 0; i < 2; ++i) {
        update_planes(planes, policy, {i == 0 ? 1.0f : -0.5f}, make_factors(each.optimizer, i + 1, 1.0));
        EXPECT_NEAR(planes.masters()[0], each.weights[i], 2e-7) << "step " << i + 1;
      }
    }
  }
}

/// Gradients of 1000 steps, of very different sizes by element, and where they lead in double.
class LongRun {
 public:
  static constexpr std::size_t kElements = 37;
  static constexpr std::uint64_t kSteps = 1000;
  static constexpr double kGradientFactor = 0.37;

  LongRun(Optimizer optimizer, std::uint64_t seed) : optimizer_(std::move(optimizer)), random_(seed) {
    for (std::size_t i = 0; i < kElements; ++i) {
      first.push_back({ordinary_float(random_), 0.0f, 0.0f});
      const float power = ordinary_float(random_) * 2;
      scales_.push_back(std::pow(10.0f, decays_gradient() ? std::fabs(power) : power));
    }
  }
  std::vector<float> next_gradient() {
    std::vector<float> gradient;
    for (const float scale : scales_) gradient.push_back(scale * (ordinary_float(random_) + 0.2f));
    return gradient;
  }
  Factors factors(std::uint64_t t) const { return make_factors(optimizer_, t, kGradientFactor); }
  BoundedElement next(const BoundedElement& element, float gradient, std::uint64_t t) const {
    return stepped(BoundedMath{}, optimizer_, t, kGradientFactor, element, Bounded{gradient, 0});
  }

  std::vector<FloatElement> first;

 private:
  // Where the decay is the greater part of a gradient, the weight's error feeds on itself through a root and a quotient,
  // and no bound by absolute values holds it.
  bool decays_gradient() const {
    struct Visitor {
      bool operator()(const AdamW&) const { return false; }
      bool operator()(const Adam& s) const { return s.weight_decay != 0; }
      bool operator()(const Adagrad& s) const { return s.weight_decay != 0; }
      bool operator()(const Lion&) const { return false; }
      bool operator()(const Sgd& s) const { return s.weight_decay != 0; }
    };
    return std::visit(Visitor{}, optimizer_);
  }

  Optimizer optimizer_;
  std::mt19937_64 random_;
  std::vector<float> scales_;
};

void expect_within(const std::vector<FloatElement>& got, const std::vector<BoundedElement>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    // 1 % for what the bound's own arithmetic rounds away.
    const BoundedElement& e = expected[i];
    EXPECT_NEAR(got[i].weight, e.weight.value, 1.01 * e.weight.error);
    EXPECT_NEAR(got[i].moment1, e.moment1.value, 1.01 * e.moment1.error);
    EXPECT_NEAR(got[i].moment2, e.moment2.value, 1.01 * e.moment2.error);
  }
}

TEST_P(UpdateValues, AgreeWithDoubleOver1000StepsWithinTheRoundingBound) {
  for (const NamedOptimizer& rule : every_rule()) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(testing::Message() << rule.name << ", seed " << seed);
      LongRun run(rule.optimizer, seed);
      std::vector<Planes> kept;
      for (const Policy policy : kFp32MomentPolicies) {
        kept.emplace_back(policy, rule.optimizer, LongRun::kElements);
        kept.back().store(run.first);
      }
      std::vector<BoundedElement> expected;
      for (const FloatElement& element : run.first) expected.push_back({{element.weight, 0}, {}, {}});
      for (std::uint64_t t = 1; t <= LongRun::kSteps; ++t) {
        const std::vector<float> gradient = run.next_gradient();
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = run.next(expected[i], gradient[i], t);
        for (std::size_t p = 0; p < kept.size(); ++p)
          update_planes(kept[p], kFp32MomentPolicies[p], gradient, run.factors(t));
      }
      for (Planes& planes : kept) expect_within(planes.elements(), expected);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        // The bound says something only if it is small beside what the steps have moved.
        const BoundedElement& e = expected[i];
        EXPECT_LT(e.weight.error, 5e-3 * std::fabs(e.weight.value - run.first[i].weight) + 2e-3);
        EXPECT_LT(e.moment2.error, 2e-3 * e.moment2.value + 1e-30);
      }
    }
  }
}

/// What is left of a moment's deviation after a step.
struct Retention {
  double moment1, moment2;
};

Retention retention_of(const Optimizer& optimizer) {
  struct Visitor {
    Retention operator()(const AdamW& s) const { return {s.beta1, s.beta2}; }
    Retention operator()(const Adam& s) const { return {s.beta1, s.beta2}; }
    Retention operator()(const Adagrad&) const { return {0, 1}; }
    Retention operator()(const Lion& s) const { return {s.beta2, 0}; }
    Retention operator()(const Sgd& s) const { return {s.momentum, 0}; }
  };
  return std::visit(Visitor{}, optimizer);
}

// Rounded up or down at random, a moment is off by less than an ulp of bf16, on average by none, with a standard
// deviation of at most half an ulp; the deviation of one step is independent of the others' and decays with the
// moment, so that variances add. 6.5 deviations are passed once in 10^10.
TEST_P(UpdateValues, WithBf16MomentsStayWithinTheDeviationOfTheirRounding) {
  constexpr double kDeviations = 6.5;
  for (const NamedOptimizer& rule : every_rule()) {
    SCOPED_TRACE(rule.name);
    const Retention retained = retention_of(rule.optimizer);
    LongRun run(rule.optimizer, 11);
    Planes planes(Policy::kBf16Moments, rule.optimizer, LongRun::kElements);
    planes.store(run.first);
    std::vector<BoundedElement> expected;  // moments without the deviation of their rounding
    std::vector<double> variance1(LongRun::kElements), variance2(LongRun::kElements);
    for (const FloatElement& element : run.first) expected.push_back({{element.weight, 0}, {}, {}});
    const auto deviating = [](Bounded moment, double variance) {
      return Bounded{moment.value, moment.error + kDeviations * std::sqrt(variance)};
    };
    const auto with_rounding = [&](double variance, double retention, const Bounded& moment) {
      const double most = std::fabs(moment.value) + moment.error + kDeviations * std::sqrt(variance);
      const double half_ulp = most == 0 ? 0 : std::ldexp(1.0, std::ilogb(most) - 8);
      return retention * retention * variance + half_ulp * half_ulp;
    };
    for (std::uint64_t t = 1; t <= LongRun::kSteps; ++t) {
      const std::vector<float> gradient = run.next_gradient();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        BoundedElement deviated = expected[i];
        deviated.moment1 = deviating(deviated.moment1, variance1[i]);
        deviated.moment2 = deviating(deviated.moment2, variance2[i]);
        const Bounded weight = run.next(deviated, gradient[i], t).weight;
        expected[i] = run.next(expected[i], gradient[i], t);
        expected[i].weight = weight;
        variance1[i] = with_rounding(variance1[i], retained.moment1, expected[i].moment1);
        variance2[i] = with_rounding(variance2[i], retained.moment2, expected[i].moment2);
      }
      update_planes(planes, Policy::kBf16Moments, gradient, run.factors(t),
                    {.key = dither_key(5, rule.name, t)});
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i].moment1 = deviating(expected[i].moment1, variance1[i]);
      expected[i].moment2 = deviating(expected[i].moment2, variance2[i]);
    }
    expect_within(planes.elements(), expected);
  }
}

/// The mean loss of the last 100 of 1000 steps over noisy gradients of a quadratic whose curvatures lie over two
/// powers of ten.
double loss_after_training(Policy policy, const Optimizer& optimizer, std::uint64_t seed) {
  constexpr std::size_t kElements = 512;
  std::mt19937_64 random(seed);
  std::vector<float> curvature(kElements), gradient(kElements);
  for (float& h : curvature) h = std::pow(10.0f, static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
  Planes planes(policy, optimizer, kElements);
  planes.store_masters(std::vector<float>(kElements, 1.0f));
  double loss = 0;
  for (std::uint64_t t = 1; t <= 1000; ++t) {
    const std::vector<float> masters = planes.masters();
    for (std::size_t i = 0; i < kElements; ++i) {
      gradient[i] = curvature[i] * (masters[i] + 0.1f * ordinary_float(random));
      if (t > 900) loss += 0.5 * curvature[i] * masters[i] * masters[i];
    }
    update_planes(planes, policy, gradient, make_factors(optimizer, t, 1.0),
                  {.key = dither_key(seed, "w", t)});
  }
  return loss / 100 / kElements;
}

TEST(UpdateTraining, ReachesWithSmallMomentsTheLossThatItReachesWithFp32) {
  constexpr std::uint64_t kSeed = 1;
  for (const NamedOptimizer& rule : every_rule()) {
    const double fp32 = loss_after_training(Policy::kBf16Split, rule.optimizer, kSeed);
    for (const Policy policy : {Policy::kBf16Moments, Policy::kMoments8}) {
      if (!validate(policy, rule.optimizer).ok()) continue;
      EXPECT_NEAR(loss_after_training(policy, rule.optimizer, kSeed), fp32, 0.03 * fp32)
          << rule.name << ", " << policy_name(policy) << ", seed " << kSeed;
    }
  }
}

TEST(Factors, AreComputedInDoubleAndRoundedOnce) {
  // 1 - b^t and its root cancel in float.
  for (const std::uint64_t t :
       {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{100000}, std::uint64_t{1} << 40}) {
    for (const NamedOptimizer& rule : every_rule()) {
      SCOPED_TRACE(testing::Message() << rule.name << ", step " << t);
      Planes planes(Policy::kFp32, rule.optimizer, 1);
      const FloatElement before{0.7f, 0.01f, 0.02f};
      planes.store({before});
      update_planes(planes, Policy::kFp32, {0.3f}, make_factors(rule.optimizer, t, 0.125));
      const FloatMath math{fuses_multiply_add(isa_in_use())};
      const FloatElement after = stepped(math, rule.optimizer, t, 0.125, before, 0.3f);
      EXPECT_EQ(planes.elements()[0].weight, after.weight);
    }
  }
}

TEST(Factors, AreEqualForEqualNumbersAndDifferForOthers) {
  for (const NamedOptimizer& rule : every_rule()) {
    const Factors factors = make_factors(rule.optimizer, 3, 0.5);
    EXPECT_EQ(factors, make_factors(rule.optimizer, 3, 0.5));
    EXPECT_NE(factors, make_factors(rule.optimizer, 3, 0.25));
    EXPECT_NE(factors, make_factors(with_lr(rule.optimizer, 0.5), 3, 0.5));
  }
  EXPECT_NE(make_factors(AdamW{.weight_decay = 0}, 1, 1.0), make_factors(Adam{.weight_decay = 1}, 1, 1.0));
}

TEST_P(UpdateValues, WithoutGradientOrMomentsOnlyDecayEvenIfEpsIsNoFloat) {
  for (const Policy policy : kFp32MomentPolicies) {
    for (const Optimizer& optimizer :
         {Optimizer(AdamW{.lr = 0.5, .eps = 1e-60, .weight_decay = 0.5}),
          Optimizer(Adam{.lr = 0.5, .eps = 1e-60}), Optimizer(Adagrad{.lr = 0.5, .eps = 1e-60}),
          Optimizer(Lion{.lr = 0.5, .weight_decay = 0.5})}) {
      const bool decoupled =
          std::holds_alternative<AdamW>(optimizer) || std::holds_alternative<Lion>(optimizer);
      Planes planes(policy, optimizer, 1);
      planes.store({{2.0f, 0.0f, 0.0f}});
      update_planes(planes, policy, {0.0f}, make_factors(optimizer, 1, 1.0));
      EXPECT_EQ(planes.masters()[0], decoupled ? 1.5f : 2.0f);
      EXPECT_EQ(bits_of(planes.moments(Plane::kMoment1))[0], 0u);
      EXPECT_EQ(bits_of(planes.moments(Plane::kMoment2))[0], 0u);
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
