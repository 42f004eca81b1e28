#include "kernels/convert.hpp"

#include <cfenv>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "each_isa.hpp"
#include "guarded.hpp"

namespace sluice::kernels {
namespace {

class Convert : public OnEachIsa {};
SLUICE_ON_EACH_ISA(Convert);

std::vector<std::uint16_t> every_half_word() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

/// The value of a half by its definition.
float value_of_f16(std::uint16_t half) {
  const int exponent = half >> 10 & 0x1F;
  const int mantissa = half & 0x3FF;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : std::copysign(NAN, sign);
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}

bool is_nan_f16(std::uint16_t half) { return (half & 0x7FFF) > 0x7C00; }
bool is_nan_bf16(std::uint16_t half) { return (half & 0x7FFF) > 0x7F80; }

/// Patterns around every rounding and class boundary: every upper half with telling lower halves.
std::vector<float> telling_floats() {
  std::vector<float> floats;
  std::mt19937_64 random(3);
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u, 0x8001u,
                                    0xFFFFu, static_cast<std::uint32_t>(random() & 0xFFFF)}) {
      floats.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return floats;
}

TEST_P(Convert, Bf16ToF32KeepsAllBits) {
  const std::vector<std::uint16_t> source = every_half_word();
  std::vector<float> target(source.size());
  bf16_to_f32(target.data(), source.data(), source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(target[i]), static_cast<std::uint32_t>(i) << 16);
  }
}

TEST_P(Convert, EveryBf16ComesBackFromF32) {
  const std::vector<std::uint16_t> source = every_half_word();
  std::vector<float> wide(source.size());
  std::vector<std::uint16_t> back(source.size());
  bf16_to_f32(wide.data(), source.data(), source.size());
  f32_to_bf16(back.data(), wide.data(), wide.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::uint16_t quiet = is_nan_bf16(source[i]) ? 0x0040 : 0;
    ASSERT_EQ(back[i], source[i] | quiet);
  }
}

TEST_P(Convert, F32ToBf16RoundsToNearestEven) {
  const std::vector<float> source = telling_floats();
  std::vector<std::uint16_t> target(source.size());
  f32_to_bf16(target.data(), source.data(), source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(source[i]);
    if (std::isnan(source[i])) {
      ASSERT_EQ(target[i], bits >> 16 | 0x0040) << std::hex << bits;
      continue;
    }
    const std::uint32_t below = bits & 0xFFFF;
    const bool up = below > 0x8000 || (below == 0x8000 && (bits >> 16 & 1) != 0);
    ASSERT_EQ(target[i], (bits >> 16) + (up ? 1 : 0)) << std::hex << bits;
  }
}

TEST_P(Convert, F16ToF32GivesTheValueOfEveryHalf) {
  const std::vector<std::uint16_t> source = every_half_word();
  std::vector<float> target(source.size());
  f16_to_f32(target.data(), source.data(), source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(target[i]);
    if (is_nan_f16(source[i])) {
      const std::uint32_t half = source[i];
      const std::uint32_t expected = (half & 0x8000u) << 16 | 0x7FC00000u | (half & 0x3FFu) << 13;
      ASSERT_EQ(bits, expected) << std::hex << i;
    } else {
      ASSERT_EQ(bits, std::bit_cast<std::uint32_t>(value_of_f16(source[i]))) << std::hex << i;
    }
  }
}

TEST_P(Convert, EveryF16ComesBackFromF32) {
  const std::vector<std::uint16_t> source = every_half_word();
  std::vector<float> wide(source.size());
  std::vector<std::uint16_t> back(source.size());
  f16_to_f32(wide.data(), source.data(), source.size());
  f32_to_f16(back.data(), wide.data(), wide.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::uint16_t quiet = is_nan_f16(source[i]) ? 0x0200 : 0;
    ASSERT_EQ(back[i], source[i] | quiet);
  }
}

TEST_P(Convert, F32ToF16RoundsToNearestEven) {
  const std::vector<float> source = telling_floats();
  std::vector<std::uint16_t> target(source.size());
  f32_to_f16(target.data(), source.data(), source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(source[i]);
    const std::uint32_t sign = bits >> 16 & 0x8000;
    if (std::isnan(source[i])) {
      ASSERT_EQ(target[i], sign | 0x7E00 | (bits >> 13 & 0x3FF)) << std::hex << bits;
      continue;
    }
    // A half's step is 2^-24 for denormals, 2^(e - 10) above; nearbyint rounds to even in units of it.
    const double magnitude = std::fabs(static_cast<double>(source[i]));
    const int exponent =
        std::max(magnitude == 0.0 || std::isinf(magnitude) ? -14 : std::ilogb(magnitude), -14);
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, 10 - exponent)), exponent - 10);
    std::uint16_t expected = 0x7C00;
    if (rounded < 65536.0) {
      expected = static_cast<std::uint16_t>(std::ldexp(rounded, 24));
      if (rounded >= 0x1p-14) {
        const int e = std::ilogb(rounded);
        expected = static_cast<std::uint16_t>((e + 15) << 10 |
                                              (static_cast<int>(std::ldexp(rounded, 10 - e)) & 0x3FF));
      }
    }
    ASSERT_EQ(target[i], sign | expected) << std::hex << bits;
  }
}

TEST_P(Convert, SplitShowsTheNearestWeightAndLosesNothing) {
  const std::vector<float> source = telling_floats();
  std::vector<std::uint16_t> weight(source.size());
  std::vector<std::int16_t> residual(source.size());
  std::vector<float> joined(source.size());
  const std::uint64_t overflows = split_bf16(weight.data(), residual.data(), source.data(), source.size());
  join_bf16_split(joined.data(), weight.data(), residual.data(), source.size());
  std::uint64_t expected_overflows = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(source[i]);
    if (std::isnan(source[i])) {
      ASSERT_EQ(weight[i], 0x7FC0);
      ASSERT_EQ(residual[i], 0);
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(joined[i]), bits);
    ASSERT_EQ(weight[i], (bits + 0x8000) >> 16) << std::hex << bits;
    const float shown = std::bit_cast<float>(static_cast<std::uint32_t>(weight[i]) << 16);
    if (std::isfinite(source[i]) && std::isinf(shown)) ++expected_overflows;
  }
  EXPECT_EQ(overflows, expected_overflows);
  EXPECT_GT(overflows, 0u);
}

TEST_P(Convert, TouchesOnlyItsElementsAtEveryLength) {
  const std::vector<float> floats = telling_floats();
  for (std::size_t n = 0; n <= 70; ++n) {
    SCOPED_TRACE(n);
    const std::vector<float> source(floats.begin() + 200000,
                                    floats.begin() + 200000 + static_cast<std::ptrdiff_t>(n));
    const std::size_t gap = n % 3;
    Guarded<float> wide(source, gap);
    Guarded<float> back(std::vector<float>(n), gap);
    Guarded<std::uint16_t> bf16(std::vector<std::uint16_t>(n), gap);
    Guarded<std::uint16_t> f16(std::vector<std::uint16_t>(n), gap);
    Guarded<std::uint16_t> weight(std::vector<std::uint16_t>(n), gap);
    Guarded<std::int16_t> residual(std::vector<std::int16_t>(n), gap);
    f32_to_bf16(bf16.data(), wide.data(), n);
    f32_to_f16(f16.data(), wide.data(), n);
    split_bf16(weight.data(), residual.data(), wide.data(), n);
    bf16_to_f32(back.data(), bf16.data(), n);
    f16_to_f32(back.data(), f16.data(), n);
    join_bf16_split(back.data(), weight.data(), residual.data(), n);
    EXPECT_EQ(bits_of(back.values()), bits_of(source));
    EXPECT_TRUE(wide.intact() && back.intact() && bf16.intact() && f16.intact() && weight.intact() &&
                residual.intact());
  }
}

TEST_P(Convert, DoesNotSeeTheCallersRoundingMode) {
  const std::vector<float> source = telling_floats();
  std::vector<std::uint16_t> nearest(source.size()), upward(source.size());
  f32_to_f16(nearest.data(), source.data(), source.size());
  std::fesetround(FE_UPWARD);
  f32_to_f16(upward.data(), source.data(), source.size());
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(upward, nearest);
}

}  // namespace
}  // namespace sluice::kernels
