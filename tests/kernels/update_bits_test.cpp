// The bits of every rule under every policy: the formulas' on every target, at every position and length, whatever
// the caller's control bits.
#include <cfenv>
#include <limits>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "dither_reference.hpp"
#include "each_isa.hpp"
#include "update_cases.hpp"

namespace sluice::kernels {
namespace {

class UpdateBits : public OnEachIsa {};
SLUICE_ON_EACH_ISA(UpdateBits);

constexpr Dither kDither{.key = 0x0123456789ABCDEF, .first_element = (std::uint64_t{1} << 32) - 40};

/// Planes after one step by the formulas, an element at a time.
Planes expected_planes(const UpdateCase& each, Planes planes, const std::vector<float>& gradient,
                       std::uint64_t t, double gradient_factor, Isa isa) {
  const FloatMath math{fuses_multiply_add(isa)};
  std::vector<FloatElement> elements = planes.elements();
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] = stepped(math, each.optimizer, t, gradient_factor, elements[i], gradient[i]);
  const PlaneBytes before = planes.bytes;
  planes.store(elements);
  if (std::visit([](const auto& rule) { return rule.lr == 0; }, each.optimizer)) {
    for (const Plane plane : {Plane::kWeight, Plane::kResidual, Plane::kMaster})
      planes.bytes[static_cast<std::size_t>(plane)] = before[static_cast<std::size_t>(plane)];
  }
  if (each.policy == Policy::kBf16Moments) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::uint32_t random = dither_bits(kDither.key, kDither.first_element + i);
      if (planes.has(Plane::kMoment1))
        planes.data<std::uint16_t>(Plane::kMoment1)[i] = dithered(elements[i].moment1, random & 0xFFFF);
      if (planes.has(Plane::kMoment2))
        planes.data<std::uint16_t>(Plane::kMoment2)[i] = dithered(elements[i].moment2, random >> 16);
    }
  }
  return planes;
}

std::uint64_t overflows_in(Planes& planes) {
  const std::vector<float> masters = planes.masters(), weights = planes.weights();
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < masters.size(); ++i)
    count += std::isfinite(masters[i]) && std::isinf(weights[i]);
  return count;
}

struct Trial {
  std::size_t elements;
  std::size_t gap;
  float (*value)(std::mt19937_64&);
  GradientPlane type;
};

void expect_formula(const UpdateCase& each, const Trial& trial, std::mt19937_64& random, Isa isa) {
  const std::uint64_t t = 1 + random() % 3;
  constexpr double kGradientFactor = 0.7;
  Planes planes(each.policy, each.optimizer, trial.elements);
  planes.store(elements_of(random, trial.elements, trial.value));
  const std::vector<float> given = floats_of(random, trial.elements, trial.value);
  const bool wide = trial.type == GradientPlane::kF32;
  const std::vector<float> gradient = wide ? given : from_bf16(to_bf16(given));
  Planes expected = expected_planes(each, planes, gradient, t, kGradientFactor, isa);

  GuardedPlanes guarded(planes, trial.gap);
  Guarded<float> floats(given, trial.gap);
  Guarded<std::uint16_t> halves(to_bf16(given), trial.gap);
  const void* gradient_plane = wide ? static_cast<const void*>(floats.data()) : halves.data();
  const std::uint64_t overflows = update({.policy = each.policy,
                                          .planes = guarded.pointers,
                                          .gradient = static_cast<const std::byte*>(gradient_plane),
                                          .gradient_plane = trial.type,
                                          .elements = trial.elements},
                                         make_factors(each.optimizer, t, kGradientFactor), kDither);
  guarded.copy_to(planes.bytes);
  for (const PlaneFormat& format : planes.formats) {
    const auto plane = static_cast<std::size_t>(format.plane);
    EXPECT_EQ(planes.bytes[plane], expected.bytes[plane]) << plane_name(format.plane);
  }
  EXPECT_EQ(overflows, overflows_in(expected));
  EXPECT_TRUE(guarded.intact() && floats.intact() && halves.intact());
}

TEST_P(UpdateBits, AreTheFormulasAtEveryLengthAndStart) {
  std::vector<std::size_t> lengths = {255, 256, 257, 263, 511, 512, 513, 769, 1000};
  for (std::size_t n = 0; n <= 33; ++n) lengths.push_back(n);
  std::mt19937_64 random(1);
  for (const UpdateCase& each : every_case()) {
    for (const std::size_t n : lengths) {
      for (const GradientPlane type : {GradientPlane::kF32, GradientPlane::kBF16}) {
        for (const auto value : {&ordinary_float, &any_float}) {
          UpdateCase tried = each;
          if (random() % 4 == 0) tried.optimizer = with_lr(each.optimizer, 0);
          SCOPED_TRACE(testing::Message() << tried.name << ", " << n << " elements, seed 1");
          expect_formula(tried, {n, n % 3, value, type}, random, GetParam());
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(UpdateBits, DoNotDependOnHowTheElementsAreCutUp) {
  for (const UpdateCase& each : every_case()) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(testing::Message() << each.name << ", seed " << seed);
      std::mt19937_64 random(seed);
      constexpr std::size_t kElements = 3000;
      Planes whole(each.policy, each.optimizer, kElements);
      whole.store(elements_of(random, kElements, &ordinary_float));
      Planes cut = whole;
      const std::vector<float> gradient = floats_of(random, kElements, &ordinary_float);
      const Factors factors = make_factors(each.optimizer, 5, 1.0);
      update_planes(whole, each.policy, gradient, factors, kDither);

      const std::size_t grain = each.policy == Policy::kMoments8 ? kGranuleElements : 1;
      for (std::size_t begin = 0; begin < kElements;) {
        const std::size_t count = std::min<std::size_t>(grain * (1 + random() % 40), kElements - begin);
        update({.policy = each.policy,
                .planes = planes_from(cut.pointers(), cut.formats, begin),
                .gradient = reinterpret_cast<const std::byte*>(gradient.data() + begin),
                .elements = count},
               factors, {kDither.key, kDither.first_element + begin});
        begin += count;
      }
      EXPECT_EQ(cut.bytes, whole.bytes);
    }
  }
}

TEST_P(UpdateBits, OfTheMasterAreTheSameHoweverItIsKept) {
  for (const NamedOptimizer& rule : every_rule()) {
    SCOPED_TRACE(rule.name);
    std::mt19937_64 random(9);
    constexpr std::size_t kElements = 333;
    std::vector<FloatElement> first(kElements);
    for (FloatElement& element : first) element = {ordinary_float(random), 0.0f, 0.0f};
    std::vector<std::vector<float>> masters;
    for (const Policy policy : {Policy::kFp32, Policy::kBf16Split, Policy::kFp16Master}) {
      Planes planes(policy, rule.optimizer, kElements);
      planes.store(first);
      std::mt19937_64 gradients(10);
      for (std::uint64_t t = 1; t <= 100; ++t) {
        update_planes(planes, policy, floats_of(gradients, kElements, &ordinary_float),
                      make_factors(rule.optimizer, t, 0.5));
      }
      masters.push_back(planes.masters());
    }
    EXPECT_EQ(bits_of(masters[1]), bits_of(masters[0]));
    EXPECT_EQ(bits_of(masters[2]), bits_of(masters[0]));
  }
}

TEST_P(UpdateBits, OfEveryNaNAreTheCanonicalOnes) {
  constexpr std::size_t kElements = 35;
  std::vector<float> gradient(kElements, std::bit_cast<float>(0xFFC12345u));
  gradient[3] = std::bit_cast<float>(0x7F812345u);
  for (const UpdateCase& each : every_case()) {
    SCOPED_TRACE(each.name);
    Planes planes(each.policy, each.optimizer, kElements);
    planes.store(std::vector<FloatElement>(kElements, {1.0f, 0.0f, 0.0f}));
    EXPECT_EQ(update_planes(planes, each.policy, gradient, make_factors(each.optimizer, 1, 1.0)), 0u);
    const testing::Matcher<const std::vector<std::uint32_t>&> canonical_ones = testing::Each(0x7FC00000u);
    EXPECT_THAT(bits_of(planes.masters()), canonical_ones);
    if (planes.has(Plane::kMoment1)) {
      EXPECT_THAT(bits_of(planes.moments(Plane::kMoment1)), canonical_ones);
    }
    if (planes.has(Plane::kMoment2)) {
      EXPECT_THAT(bits_of(planes.moments(Plane::kMoment2)), canonical_ones);
    }
    if (planes.has(Plane::kMaster)) {
      EXPECT_EQ(planes.data<std::uint16_t>(Plane::kWeight)[3], 0x7E00);
    }
  }
}

// Vectors are tested for special numbers as a whole.
TEST_P(UpdateBits, OfOneSpecialNumberAmongOrdinaryOnesAreTheFormulas) {
  struct Special {
    FloatElement element;
    float gradient;
  };
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const Special specials[] = {
      {{1.0f, FLT_MIN, 1.0f}, 0.0f}, {{1.0f, 1.0f, FLT_MIN * 1.0001f}, 0.0f},
      {{1.0f, 0.0f, 1.0f}, -1e-45f},  // -0 from what rounds away
      {{1.0f, kNaN, 1.0f}, 0.0f},    {{1.0f, 1.0f, kNaN}, 0.0f},
      {{kNaN, 1.0f, 1.0f}, 0.0f},    {{1.0f, 1.0f, 1.0f}, std::bit_cast<float>(0x7F812345u)},
      {{FLT_MAX, 1.0f, 1.0f}, 0.0f}, {{-INFINITY, 1.0f, 1.0f}, 0.0f}};
  constexpr std::size_t kElements = 64;
  for (const UpdateCase& each : every_case()) {
    if (each.policy == Policy::kMoments8) continue;
    SCOPED_TRACE(each.name);
    for (const Special& special : specials) {
      for (std::size_t at = 0; at < kElements; ++at) {
        std::vector<FloatElement> elements(kElements, {1.0f, 0.5f, 0.5f});
        std::vector<float> gradient(kElements, 0.25f);
        elements[at] = special.element;
        gradient[at] = special.gradient;
        Planes planes(each.policy, each.optimizer, kElements);
        planes.store(elements);
        Planes expected = expected_planes(each, planes, gradient, 2, 1.0, GetParam());
        const std::uint64_t overflows =
            update_planes(planes, each.policy, gradient, make_factors(each.optimizer, 2, 1.0), kDither);
        ASSERT_EQ(planes.bytes, expected.bytes) << "special element " << at;
        ASSERT_EQ(overflows, overflows_in(expected)) << "special element " << at;
      }
    }
  }
}

TEST_P(UpdateBits, OfMomentsBelowTheLeastNormalFloatArePlusZero) {
  const std::vector<FloatElement> elements = {{1.0f, FLT_MIN * 1.05f, FLT_MIN * 1.0001f},
                                              {1.0f, -FLT_MIN * 1.05f, FLT_MIN * 0.5f},
                                              {1.0f, FLT_MIN * 2.0f, FLT_MIN * 2.0f}};
  const std::vector<float> gradient(3, 0.0f);
  for (const Policy policy : {Policy::kFp32, Policy::kBf16Split, Policy::kFp16Master}) {
    Planes planes(policy, AdamW{}, 3);
    planes.store(elements);
    update_planes(planes, policy, gradient, make_factors(AdamW{}, 10, 1.0));
    for (const Plane plane : {Plane::kMoment1, Plane::kMoment2})
      EXPECT_THAT(bits_of(planes.moments(plane)), testing::ElementsAre(0u, 0u, testing::Gt(0x00800000u)));
  }
}

TEST_P(UpdateBits, CountFiniteMastersThatShowInf) {
  const std::vector<float> masters = {
      FLT_MAX, -FLT_MAX, std::bit_cast<float>(0x7F7F7FFFu), INFINITY, 65520.0f, 65519.9f, -65520.0f, 1.0f};
  const std::vector<float> gradient(masters.size(), 0.0f);
  for (const auto& [policy, overflows] : {std::pair{Policy::kFp32, 0u},
                                          {Policy::kBf16Split, 2u},
                                          {Policy::kBf16Moments, 2u},
                                          {Policy::kMoments8, 2u},
                                          {Policy::kFp16Master, 5u}}) {
    for (const double lr : {0.0, 1e-3}) {
      Planes planes(policy, Adam{}, masters.size());
      planes.store_masters(masters);
      EXPECT_EQ(update_planes(planes, policy, gradient, make_factors(Adam{.lr = lr}, 1, 1.0)), overflows)
          << policy_name(policy);
      EXPECT_EQ(planes.masters(), masters);
    }
  }
}

/// The bytes that one update of two thousand elements of every kind leaves, by case, under a caller's control bits.
template <class Control>
std::vector<PlaneBytes> mixed_updates() {
  std::vector<PlaneBytes> results;
  for (const UpdateCase& each : every_case()) {
    std::mt19937_64 random(21);
    constexpr std::size_t kElements = 2000;
    Planes planes(each.policy, each.optimizer, kElements);
    planes.store(elements_of(random, kElements, &any_float));
    const std::vector<float> gradient = floats_of(random, kElements, &any_float);
    {
      const Control control;
      update_planes(planes, each.policy, gradient, make_factors(each.optimizer, 7, 1.0), kDither);
    }
    results.push_back(planes.bytes);
  }
  return results;
}

struct Default {
  Default() {}
};

struct RoundUpward {
  RoundUpward() { std::fesetround(FE_UPWARD); }
  ~RoundUpward() {
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    std::fesetround(FE_TONEAREST);
  }
};

TEST_P(UpdateBits, DoNotDependOnTheCallersRoundingMode) {
  EXPECT_EQ(mixed_updates<RoundUpward>(), mixed_updates<Default>());
}

#if defined(__x86_64__)
struct FlushToZero {
  FlushToZero() { _mm_setcsr(control | kFlushBits); }
  ~FlushToZero() {
    EXPECT_EQ(_mm_getcsr() & kFlushBits, kFlushBits);
    _mm_setcsr(control);
  }
  static constexpr unsigned kFlushBits = 0x8040;  // FTZ and DAZ
  const unsigned control = _mm_getcsr();
};

TEST_P(UpdateBits, DoNotDependOnFlushToZeroInTheCaller) {
  EXPECT_EQ(mixed_updates<FlushToZero>(), mixed_updates<Default>());
}
#endif

}  // namespace
}  // namespace sluice::kernels
