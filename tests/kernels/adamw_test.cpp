// AdamW's values: against published numbers and a computation in double.
#include <random>
#include <vector>

#include "adamw_planes.hpp"
#include "adamw_reference.hpp"
#include "each_isa.hpp"

namespace sluice::kernels {
namespace {

class AdamWValues : public OnEachIsa {};
SLUICE_ON_EACH_ISA(AdamWValues);

struct CheckValues {
  sluice::AdamW settings;
  double weights[3];
};

const CheckValues kCheckValues[] = {
    {{.lr = 1e-2, .weight_decay = 0.0}, {0.990000000200, 0.987336629871, 0.983932338492}},
    {{.lr = 1e-2, .weight_decay = 0.1}, {0.989000000200, 0.985347629871, 0.980957990862}}};
constexpr float kCheckGradients[3] = {0.5f, -0.25f, 0.125f};

template <class State>
void expect_check_values(const CheckValues& check, double loss_scale) {
  State state({{1.0f, 0.0f, 0.0f}});
  for (std::size_t i = 0; i < 3; ++i) {
    const auto scaled = static_cast<float>(kCheckGradients[i] * loss_scale);
    state.update(&scaled, GradientPlane::kF32, make_factors(check.settings, i + 1, 1.0 / loss_scale));
    EXPECT_NEAR(state.masters()[0], check.weights[i], 2e-7) << "step " << i + 1;
  }
}

TEST_P(AdamWValues, GivesTheCheckValues) {
  for (const CheckValues& check : kCheckValues) {
    for (const double loss_scale : {1.0, 65536.0}) {
      expect_check_values<Fp32State>(check, loss_scale);
      expect_check_values<Bf16SplitState>(check, loss_scale);
    }
  }
}

TEST(AdamWReference, GivesTheCheckValuesToTwelveDigits) {
  for (const CheckValues& check : kCheckValues) {
    BoundedAdamW reference(1.0);
    for (std::size_t i = 0; i < 3; ++i) {
      reference.step(check.settings, kCheckGradients[i], 1.0);
      EXPECT_NEAR(reference.weight(), check.weights[i], 1e-12);
    }
  }
}

template <class State>
void expect_agreement_over_1000_steps(const sluice::AdamW& settings, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  constexpr std::size_t kElements = 37;
  constexpr double kGradientFactor = 0.37;
  std::vector<AdamWElement> elements(kElements);
  std::vector<BoundedAdamW> references;
  std::vector<float> scales;
  for (AdamWElement& element : elements) {
    element = {normal(random), 0.0f, 0.0f};
    references.emplace_back(element.weight);
    scales.push_back(std::pow(10.0f, normal(random) * 2));
  }
  State state(elements);
  std::vector<float> gradient(kElements);
  for (std::uint64_t t = 1; t <= 1000; ++t) {
    for (std::size_t i = 0; i < kElements; ++i) {
      gradient[i] = scales[i] * (normal(random) + 0.2f);
      references[i].step(settings, gradient[i], kGradientFactor);
    }
    state.update(gradient.data(), GradientPlane::kF32, make_factors(settings, t, kGradientFactor));
  }
  const std::vector<float> weights = state.masters();
  for (std::size_t i = 0; i < kElements; ++i) {
    const BoundedAdamW& r = references[i];
    EXPECT_NEAR(weights[i], r.weight(), r.weight_error());
    EXPECT_NEAR(state.moments1()[i], r.moment1(), r.moment1_error());
    EXPECT_NEAR(state.moments2()[i], r.moment2(), r.moment2_error());
    // The bound says something only if it is small beside what the steps have moved.
    EXPECT_LT(r.weight_error(), 2e-3 * std::fabs(r.weight() - elements[i].weight) + 1e-3);
    EXPECT_LT(r.moment2_error(), 2e-3 * r.moment2());
  }
}

TEST_P(AdamWValues, AgreesWithDoubleOver1000StepsWithinTheRoundingBound) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    expect_agreement_over_1000_steps<Fp32State>({}, seed);
    expect_agreement_over_1000_steps<Bf16SplitState>({}, seed);
    expect_agreement_over_1000_steps<Bf16SplitState>(
        {.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1}, seed);
  }
}

TEST(AdamWFactors, AreComputedInDoubleAndRoundedOnce) {
  const sluice::AdamW settings;
  const Factors f = make_factors(settings, 100000, 0.125);
  EXPECT_EQ(f.gradient, 0.125f);
  EXPECT_EQ(f.numbers[AdamNumber::kOneMinusBeta1], static_cast<float>(1.0 - 0.9));
  EXPECT_EQ(f.numbers[AdamNumber::kOneMinusBeta2], static_cast<float>(1.0 - 0.999));
  EXPECT_EQ(f.numbers[AdamNumber::kRootScale], 1.0f);
  EXPECT_EQ(f.numbers[AdamNumber::kStep], 1e-3f);
  EXPECT_EQ(f.numbers[AdamNumber::kDecay], static_cast<float>(1.0 - 1e-5));
  EXPECT_EQ(make_factors(settings, 1, 1.0).numbers[AdamNumber::kStep],
            static_cast<float>(1e-3 / (1.0 - 0.9)));
  EXPECT_EQ(make_factors(settings, std::uint64_t{1} << 40, 1.0).numbers[AdamNumber::kStep], 1e-3f);
}

TEST(AdamWFactors, KeepAnEpsThatFloatCannotHoldAboveZero) {
  EXPECT_EQ(make_factors(sluice::AdamW{.eps = 1e-60}, 1, 1.0).numbers[AdamNumber::kEps], FLT_MIN);
}

TEST_P(AdamWValues, WithoutGradientOrMomentsOnlyDecays) {
  Bf16SplitState state({{2.0f, 0.0f, 0.0f}});
  const float zero = 0.0f;
  state.update(&zero, GradientPlane::kF32,
               make_factors(sluice::AdamW{.lr = 0.5, .eps = 1e-60, .weight_decay = 0.5}, 1, 1.0));
  EXPECT_EQ(state.masters()[0], 1.5f);
  EXPECT_EQ(bits_of(state.moments1())[0], 0u);
  EXPECT_EQ(bits_of(state.moments2())[0], 0u);
}

TEST_P(AdamWValues, LrZeroLeavesWeightsAndAdvancesMoments) {
  // A NaN that no update would store stays as it is; only the finite master that shows Inf is counted.
  const std::vector<float> weights = {1.0f, -0.0f, std::bit_cast<float>(0x7F800123u), FLT_MAX, 3.0e-40f};
  std::vector<AdamWElement> elements;
  for (const float weight : weights) elements.push_back({weight, 0.5f, 0.25f});
  const std::vector<float> gradient(weights.size(), 1.0f);
  const Factors factors = make_factors(sluice::AdamW{.lr = 0.0}, 3, 1.0);

  Fp32State fp32(elements);
  fp32.update(gradient.data(), GradientPlane::kF32, factors);
  EXPECT_EQ(bits_of(fp32.masters()), bits_of(weights));
  EXPECT_NE(fp32.moments1()[0], 0.5f);

  Bf16SplitState split(elements);
  const std::vector<std::uint16_t> shown = split.weights();
  const std::vector<std::int16_t> residuals = split.residuals();
  EXPECT_EQ(split.update(gradient.data(), GradientPlane::kF32, factors), 1u);
  EXPECT_EQ(split.weights(), shown);
  EXPECT_EQ(split.residuals(), residuals);
  EXPECT_EQ(split.moments1(), fp32.moments1());
  EXPECT_EQ(split.moments2(), fp32.moments2());
}

TEST_P(AdamWValues, CountsFiniteMastersThatShowInf) {
  const auto greatest_shown = std::bit_cast<float>(0x7F7F7FFFu);
  std::vector<AdamWElement> elements(40, {1.0f, 0.0f, 0.0f});
  elements[0].weight = FLT_MAX;
  elements[17].weight = -FLT_MAX;
  elements[39].weight = FLT_MAX;
  elements[5].weight = greatest_shown;
  elements[6].weight = INFINITY;
  const std::vector<float> gradient(elements.size(), 0.0f);
  Bf16SplitState state(elements);
  EXPECT_EQ(state.update(gradient.data(), GradientPlane::kF32,
                         make_factors(sluice::AdamW{.weight_decay = 0.0}, 1, 1.0)),
            3u);
  EXPECT_EQ(state.weights()[17], 0xFF80);
  EXPECT_EQ(state.masters()[17], -FLT_MAX);
  EXPECT_EQ(state.masters()[5], greatest_shown);
}

}  // namespace
}  // namespace sluice::kernels
