// Stochastic rounding: unbiased, and keyed by element, plane, step, name and seed alone.
#include <cmath>
#include <set>
#include <vector>

#include "dither_reference.hpp"
#include "each_isa.hpp"
#include "update_cases.hpp"

namespace sluice::kernels {
namespace {

class Dithering : public OnEachIsa {};
SLUICE_ON_EACH_ISA(Dithering);

/// `value` rounded in each element: as the first momentum buffer and as the first sum of squares.
struct RoundedMoments {
  std::vector<std::uint16_t> moment1, moment2;
};

RoundedMoments round_many(float value, std::size_t elements, const Dither& dither) {
  const Optimizer restart = Sgd{.lr = 0};
  Planes first(Policy::kBf16Moments, restart, elements);
  update_planes(first, Policy::kBf16Moments, std::vector<float>(elements, value),
                make_factors(restart, 1, 1.0), dither);
  const Optimizer sum = Adagrad{.lr = 0};
  Planes second(Policy::kBf16Moments, sum, elements);
  update_planes(second, Policy::kBf16Moments, std::vector<float>(elements, std::sqrt(value)),
                make_factors(sum, 1, 1.0), dither);
  const auto halves = [&](Planes& planes, Plane plane) {
    const auto* begin = planes.data<std::uint16_t>(plane);
    return std::vector<std::uint16_t>(begin, begin + elements);
  };
  return {halves(first, Plane::kMoment1), halves(second, Plane::kMoment2)};
}

double share_above(const std::vector<std::uint16_t>& rounded, std::uint16_t below) {
  double above = 0;
  for (const std::uint16_t half : rounded) {
    EXPECT_TRUE(half == below || half == below + 1);
    above += half != below;
  }
  return above / static_cast<double>(rounded.size());
}

TEST_P(Dithering, RoundsUpAsOftenAsTheValueLiesAbove) {
  constexpr std::size_t kElements = 1 << 17;
  for (const std::uint32_t fraction : {0x10u, 0x1000u, 0x5555u, 0x8000u, 0xC001u, 0xFFF0u}) {
    for (std::uint64_t key = 1; key <= 5; ++key) {
      SCOPED_TRACE(testing::Message() << "fraction " << fraction << ", key " << key);
      const float value = std::bit_cast<float>(0x3F8A0000u + fraction);
      const double expected = fraction / 65536.0;
      const double deviation = std::sqrt(expected * (1 - expected) / kElements);
      const RoundedMoments rounded = round_many(value, kElements, {.key = key * 0x9E3779B97F4A7C15});
      EXPECT_NEAR(share_above(rounded.moment1, 0x3F8A), expected, 5 * deviation);
      // The square of the root is within an ulp of the value: 2^-16 of the share.
      EXPECT_NEAR(share_above(rounded.moment2, 0x3F8A), expected, 5 * deviation + 0x1p-16);
    }
  }
}

TEST(DitherBits, FillSixteenBinsOfEachHalfEvenlyAndWithoutSerialCorrelation) {
  // Chi-square with 255 degrees of freedom stays below 376 but in 10^-6 of all draws; pairs of neighbours and the two
  // halves of one element are binned 16 by 16.
  constexpr std::size_t kDraws = 1 << 16;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    const std::uint64_t key = dither_key(seed, "layers.0.weight", 17);
    std::vector<double> neighbours(256), halves(256), steps(256);
    for (std::size_t i = 0; i < kDraws; ++i) {
      const std::uint32_t x = dither_bits(key, i), next = dither_bits(key, i + 1);
      const std::uint32_t next_step = dither_bits(dither_key(seed, "layers.0.weight", 18), i);
      ++neighbours[((x & 0xFFFF) >> 12) * 16 + ((next & 0xFFFF) >> 12)];
      ++halves[((x & 0xFFFF) >> 12) * 16 + (x >> 28)];
      ++steps[((x & 0xFFFF) >> 12) * 16 + ((next_step & 0xFFFF) >> 12)];
    }
    for (const std::vector<double>& bins : {neighbours, halves, steps}) {
      double chi_square = 0;
      for (const double count : bins) chi_square += (count - kDraws / 256.0) * (count - kDraws / 256.0);
      EXPECT_LT(chi_square / (kDraws / 256.0), 376);
    }
  }
}

TEST(DitherKey, DiffersBySeedNameAndStep) {
  const std::set<std::uint64_t> keys = {dither_key(1, "a", 1), dither_key(2, "a", 1), dither_key(1, "b", 1),
                                        dither_key(1, "a", 2), dither_key(1, "", 1)};
  EXPECT_EQ(keys.size(), 5u);
  EXPECT_EQ(dither_key(1, "a", 1), dither_key(1, "a", 1));
}

TEST_P(Dithering, DiffersByPlaneAndKey) {
  const float value = std::bit_cast<float>(0x3F8A8000u);
  const RoundedMoments one = round_many(value, 1000, {.key = dither_key(1, "a", 1)});
  const RoundedMoments other = round_many(value, 1000, {.key = dither_key(1, "a", 2)});
  EXPECT_NE(one.moment1, one.moment2);
  EXPECT_NE(one.moment1, other.moment1);
  EXPECT_NE(one.moment2, other.moment2);
}

TEST_P(Dithering, NeverMakesInfOfWhatBf16Holds) {
  for (const std::uint32_t bits : {0x7F7F0000u, 0x7F800000u, 0x00800000u, 0x3F800000u}) {
    const auto value = std::bit_cast<float>(bits);
    for (const std::uint16_t half : round_many(value, 500, {.key = 3}).moment1) EXPECT_EQ(half, bits >> 16);
  }
}

TEST_P(Dithering, NeverMakesInfOfAFiniteMoment) {
  for (const std::uint32_t bits : {0x7F7F0001u, 0x7F7F8000u, 0x7F7FFFFFu, 0xFF7F8000u, 0xFF7FFFFFu}) {
    const auto value = std::bit_cast<float>(bits);
    for (const std::uint16_t half : round_many(value, 500, {.key = 3}).moment1) EXPECT_EQ(half, bits >> 16);
  }
}

}  // namespace
}  // namespace sluice::kernels
