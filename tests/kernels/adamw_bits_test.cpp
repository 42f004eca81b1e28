// AdamW's bits: the same on every target with FMA, at every position and length, whatever the caller's
// control bits.
#include <cfenv>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "adamw_planes.hpp"
#include "adamw_reference.hpp"
#include "each_isa.hpp"

namespace sluice::kernels {
namespace {

class AdamWBits : public OnEachIsa {};
SLUICE_ON_EACH_ISA(AdamWBits);

const sluice::AdamW kSettings{.lr = 3e-3, .weight_decay = 0.05};
constexpr std::size_t kLanesMax = 16;

/// Ordinary, tiny, huge and special numbers mixed.
float random_float(std::mt19937_64& random) {
  switch (random() % 16) {
    case 0:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random()));  // anything, NaN and Inf too
    case 1:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random() & 0x80FFFFFF));  // denormal or nearly
    case 2:
      return random() % 2 == 0 ? 0.0f : -0.0f;
    default:
      return std::ldexp(std::normal_distribution<float>()(random), static_cast<int>(random() % 24) - 12);
  }
}

std::vector<AdamWElement> random_elements(std::mt19937_64& random, std::size_t count) {
  std::vector<AdamWElement> elements(count);
  for (AdamWElement& element : elements) {
    element = {random_float(random), random_float(random), std::fabs(random_float(random))};
    if (std::isnan(element.weight)) element.weight = NAN;
  }
  return elements;
}

std::vector<float> random_gradient(std::mt19937_64& random, std::size_t count) {
  std::vector<float> gradient(count);
  for (float& g : gradient) g = random_float(random);
  return gradient;
}

template <class State>
void expect_formula(const std::vector<AdamWElement>& elements, const std::vector<float>& gradient,
                    GradientPlane type, std::size_t gap, const Factors& factors, Isa isa) {
  const std::size_t n = elements.size();
  std::vector<std::uint16_t> halves(n);
  std::vector<float> meant = gradient;
  f32_to_bf16(halves.data(), gradient.data(), n);
  if (type == GradientPlane::kBF16) bf16_to_f32(meant.data(), halves.data(), n);
  std::vector<AdamWElement> expected(n);
  for (std::size_t i = 0; i < n; ++i) expected[i] = adamw_one(elements[i], meant[i], factors, isa);

  State state(elements, gap);
  Guarded<float> wide(gradient, gap);
  Guarded<std::uint16_t> narrow(halves, gap);
  state.update(type == GradientPlane::kF32 ? static_cast<const void*>(wide.data()) : narrow.data(), type,
               factors);
  EXPECT_EQ(bits_of(state.masters()), bits_of(Fp32State::plane(expected, &AdamWElement::weight)));
  EXPECT_EQ(bits_of(state.moments1()), bits_of(Fp32State::plane(expected, &AdamWElement::moment1)));
  EXPECT_EQ(bits_of(state.moments2()), bits_of(Fp32State::plane(expected, &AdamWElement::moment2)));
  EXPECT_TRUE(state.intact() && wide.intact() && narrow.intact());
}

TEST_P(AdamWBits, AreTheFormulasAtEveryLengthAndStart) {
  std::mt19937_64 random(1);
  for (const double lr : {3e-3, 0.0}) {
    for (std::size_t n = 0; n <= 4 * kLanesMax + 1; ++n) {
      for (std::size_t gap = 0; gap < 3; ++gap) {
        SCOPED_TRACE(testing::Message() << "n " << n << " gap " << gap);
        const Factors factors =
            make_factors(sluice::AdamW{.lr = lr, .weight_decay = 0.05}, 1 + random() % 100, 0.7);
        const std::vector<AdamWElement> elements = random_elements(random, n);
        const std::vector<float> gradient = random_gradient(random, n);
        for (const GradientPlane type : {GradientPlane::kF32, GradientPlane::kBF16}) {
          expect_formula<Fp32State>(elements, gradient, type, gap, factors, GetParam());
          expect_formula<Bf16SplitState>(elements, gradient, type, gap, factors, GetParam());
        }
      }
    }
  }
}

TEST_P(AdamWBits, DoNotDependOnHowTheElementsAreCutUp) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    constexpr std::size_t kElements = 300;
    const std::vector<AdamWElement> elements = random_elements(random, kElements);
    const std::vector<float> gradient = random_gradient(random, kElements);
    const Factors factors = make_factors(kSettings, 5, 1.0);
    Fp32State whole(elements);
    whole.update(gradient.data(), GradientPlane::kF32, factors);

    std::vector<float> weights = Fp32State::plane(elements, &AdamWElement::weight);
    std::vector<float> moments1 = Fp32State::plane(elements, &AdamWElement::moment1);
    std::vector<float> moments2 = Fp32State::plane(elements, &AdamWElement::moment2);
    for (std::size_t begin = 0; begin < kElements;) {
      const std::size_t count = std::min<std::size_t>(1 + random() % 40, kElements - begin);
      update_planes(Policy::kFp32,
                    {{Plane::kWeight, weights.data() + begin},
                     {Plane::kMoment1, moments1.data() + begin},
                     {Plane::kMoment2, moments2.data() + begin}},
                    gradient.data() + begin, GradientPlane::kF32, count, factors);
      begin += count;
    }
    EXPECT_EQ(bits_of(weights), bits_of(whole.masters()));
    EXPECT_EQ(bits_of(moments1), bits_of(whole.moments1()));
    EXPECT_EQ(bits_of(moments2), bits_of(whole.moments2()));
  }
}

TEST_P(AdamWBits, OfTheSplitMasterAreThoseOfFp32OverManySteps) {
  std::mt19937_64 random(9);
  std::vector<AdamWElement> elements(333);
  for (AdamWElement& element : elements) element = {std::normal_distribution<float>()(random), 0.0f, 0.0f};
  Fp32State fp32(elements);
  Bf16SplitState split(elements);
  for (std::uint64_t t = 1; t <= 200; ++t) {
    std::vector<float> gradient(elements.size());
    for (float& g : gradient) g = std::normal_distribution<float>()(random);
    const Factors factors = make_factors(kSettings, t, 0.5);
    fp32.update(gradient.data(), GradientPlane::kF32, factors);
    split.update(gradient.data(), GradientPlane::kF32, factors);
  }
  EXPECT_EQ(bits_of(split.masters()), bits_of(fp32.masters()));
  EXPECT_EQ(bits_of(split.moments2()), bits_of(fp32.moments2()));
}

TEST_P(AdamWBits, OfMomentsBelowTheLeastNormalFloatArePlusZero) {
  const std::vector<AdamWElement> elements = {{1.0f, FLT_MIN * 1.05f, FLT_MIN * 1.0001f},
                                              {1.0f, -FLT_MIN * 1.05f, FLT_MIN * 0.5f},
                                              {1.0f, FLT_MIN * 2.0f, FLT_MIN * 2.0f}};
  const std::vector<float> gradient(3, 0.0f);
  Fp32State state(elements);
  state.update(gradient.data(), GradientPlane::kF32, make_factors(kSettings, 10, 1.0));
  EXPECT_THAT(bits_of(state.moments1()), testing::ElementsAre(0u, 0u, testing::Gt(0x00800000u)));
  EXPECT_THAT(bits_of(state.moments2()), testing::ElementsAre(0u, 0u, testing::Gt(0x00800000u)));
}

TEST_P(AdamWBits, OfEveryNaNAreTheCanonicalOnes) {
  std::vector<AdamWElement> elements(35, {1.0f, 0.0f, 0.0f});
  for (AdamWElement& element : elements) element.weight = std::bit_cast<float>(0x3F800000u);
  std::vector<float> gradient(elements.size(), std::bit_cast<float>(0xFFC12345u));
  gradient[3] = std::bit_cast<float>(0x7F812345u);
  Fp32State fp32(elements);
  Bf16SplitState split(elements);
  fp32.update(gradient.data(), GradientPlane::kF32, make_factors(kSettings, 1, 1.0));
  split.update(gradient.data(), GradientPlane::kF32, make_factors(kSettings, 1, 1.0));
  const testing::Matcher<const std::vector<std::uint32_t>&> canonical = testing::Each(0x7FC00000u);
  EXPECT_THAT(bits_of(fp32.masters()), canonical);
  EXPECT_THAT(bits_of(fp32.moments1()), canonical);
  EXPECT_THAT(bits_of(fp32.moments2()), canonical);
  EXPECT_THAT(split.weights(), testing::Each(0x7FC0));
  EXPECT_THAT(split.residuals(), testing::Each(0));
}

/// One update of two thousand elements of every kind.
struct MixedUpdate {
  void run() { state.update(gradient.data(), GradientPlane::kF32, factors); }
  std::vector<std::vector<std::uint32_t>> bits() {
    return {bits_of(state.masters()), bits_of(state.moments1()), bits_of(state.moments2())};
  }

  std::mt19937_64 random{21};
  Bf16SplitState state{random_elements(random, 2000)};
  std::vector<float> gradient = random_gradient(random, 2000);
  Factors factors = make_factors(kSettings, 7, 1.0);
};

TEST_P(AdamWBits, DoNotDependOnTheCallersRoundingMode) {
  MixedUpdate nearest, upward;
  nearest.run();
  std::fesetround(FE_UPWARD);
  upward.run();
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(upward.bits(), nearest.bits());
}

#if defined(__x86_64__)
TEST_P(AdamWBits, DoNotDependOnFlushToZeroInTheCaller) {
  MixedUpdate kept, flushed;
  kept.run();
  constexpr unsigned kFlushBits = 0x8040;  // FTZ and DAZ
  const unsigned control = _mm_getcsr();
  _mm_setcsr(control | kFlushBits);
  flushed.run();
  EXPECT_EQ(_mm_getcsr() & kFlushBits, kFlushBits);
  _mm_setcsr(control);
  EXPECT_EQ(flushed.bits(), kept.bits());
}
#endif

}  // namespace
}  // namespace sluice::kernels
