// 8-bit moments against the code's definition in double.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>
#include <vector>

#include "each_isa.hpp"
#include "guarded.hpp"
#include "kernels/constants.hpp"
#include "kernels/moments8.hpp"

namespace sluice::kernels {
namespace {

class Moments8 : public OnEachIsa {};
SLUICE_ON_EACH_ISA(Moments8);

constexpr Moment8 kKinds[] = {Moment8::kSigned, Moment8::kUnsigned};

int decades_of(Moment8 kind) { return kind == Moment8::kSigned ? 7 : 8; }
std::uint32_t largest_code(Moment8 kind) { return (1u << decades_of(kind)) - 1; }

/// The middle of a magnitude code's bucket, before it is divided by that of the largest.
double middle_of(std::uint32_t code, Moment8 kind) {
  if (code == 0) return 0;
  const int d = std::bit_width(code) - 1;
  const double j = code - (1u << d);
  return std::pow(10.0, d - decades_of(kind)) * (1 + 9 * (j + 0.5) / (1 << d));
}

double fraction_of(std::uint32_t code, Moment8 kind) {
  return middle_of(code, kind) / middle_of(largest_code(kind), kind);
}

struct Encoded {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};

Encoded encode(const std::vector<float>& values, Moment8 kind) {
  Encoded encoded{std::vector<std::uint8_t>(values.size()),
                  std::vector<float>((values.size() + kGranuleElements - 1) / kGranuleElements)};
  encode_moments8(encoded.codes.data(), encoded.scales.data(), values.data(), values.size(), kind);
  return encoded;
}

std::vector<float> decode(const Encoded& encoded, Moment8 kind) {
  std::vector<float> values(encoded.codes.size());
  decode_moments8(values.data(), encoded.codes.data(), encoded.scales.data(), values.size(), kind);
  return values;
}

std::vector<float> random_values(std::mt19937_64& random, std::size_t count, Moment8 kind) {
  std::vector<float> values(count);
  for (float& x : values) {
    x = std::normal_distribution<float>()(random) * std::pow(10.0f, -static_cast<float>(random() % 9));
    if (kind == Moment8::kUnsigned) x = std::fabs(x);
  }
  return values;
}

TEST_P(Moments8, EveryCodeStandsForTheMiddleOfItsBucket) {
  for (const Moment8 kind : kKinds) {
    for (const float scale : {1.0f, 3.7e-5f, 2.5e9f}) {
      Encoded all{std::vector<std::uint8_t>(256), {scale}};
      for (std::size_t code = 0; code < 256; ++code) all.codes[code] = static_cast<std::uint8_t>(code);
      const std::vector<float> values = decode(all, kind);
      for (std::uint32_t code = 0; code < 256; ++code) {
        const double sign = code > largest_code(kind) ? -1 : 1;
        const double expected = sign * scale * fraction_of(code & largest_code(kind), kind);
        EXPECT_NEAR(values[code], expected, 0x1p-12 * std::fabs(expected)) << "code " << code;
      }
      EXPECT_EQ(values[largest_code(kind)], scale);
    }
  }
}

TEST_P(Moments8, AValueDecodesToWithinHalfItsBucket) {
  for (const Moment8 kind : kKinds) {
    std::mt19937_64 random(5);
    const std::vector<float> values = random_values(random, 64 * kGranuleElements, kind);
    const Encoded encoded = encode(values, kind);
    const std::vector<float> decoded = decode(encoded, kind);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double scale = encoded.scales[i / kGranuleElements];
      const double part = std::fabs(values[i]) / scale * middle_of(largest_code(kind), kind);
      const int d = std::max(0, static_cast<int>(std::floor(std::log10(part))) + decades_of(kind));
      const double floor = std::pow(10.0, d - decades_of(kind)) / middle_of(largest_code(kind), kind) * scale;
      if (values[i] == 0 || part < std::pow(10.0, -decades_of(kind))) {
        const double least = kind == Moment8::kUnsigned && values[i] != 0 ? fraction_of(1, kind) * scale : 0;
        EXPECT_NEAR(decoded[i], least, 0x1p-12 * least);
      } else {
        EXPECT_NEAR(decoded[i], values[i], floor * (9.0 / (2 << d) + 10 * 0x1p-12)) << "element " << i;
      }
    }
  }
}

TEST_P(Moments8, TheLargestValueOfAGranuleIsKept) {
  for (const Moment8 kind : kKinds) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      std::mt19937_64 random(seed);
      std::vector<float> values = random_values(random, 1 + random() % kGranuleElements, kind);
      const std::size_t at = random() % values.size();
      values[at] = std::ldexp(1.0f + std::fabs(values[at]), static_cast<int>(random() % 240) - 120);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (std::fabs(values[i]) >= values[at] && i != at) values[i] = 0;
      EXPECT_EQ(decode(encode(values, kind), kind)[at], values[at]) << "seed " << seed;
    }
  }
}

TEST_P(Moments8, CodingWhatWasDecodedGivesTheSameCodesAndScales) {
  for (const Moment8 kind : kKinds) {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937_64 random(seed);
      std::vector<float> values = random_values(random, 1 + random() % 1000, kind);
      const float magnitude = std::ldexp(1.0f, static_cast<int>(random() % 250) - 125);
      for (float& x : values) x *= magnitude;
      for (float& x : values)
        if (!std::isfinite(x)) x = 0;
      const Encoded first = encode(values, kind);
      const Encoded again = encode(decode(first, kind), kind);
      EXPECT_EQ(again.codes, first.codes);
      EXPECT_EQ(bits_of(again.scales), bits_of(first.scales));
    }
  }
  // Every code, beside the largest.
  for (const Moment8 kind : kKinds) {
    for (std::uint32_t code = 0; code < 256; ++code) {
      if (kind == Moment8::kSigned && code == 0x80) continue;  // no value has it
      const Encoded pair{{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(largest_code(kind))},
                         {0.37f}};
      EXPECT_EQ(encode(decode(pair, kind), kind).codes, pair.codes);
    }
  }
}

TEST_P(Moments8, SecondMomentsButZeroNeverBecomeZero) {
  const std::vector<float> decoded =
      decode(encode({1.0f, 1e-30f, 0.0f}, Moment8::kUnsigned), Moment8::kUnsigned);
  EXPECT_GT(decoded[1], 0.0f);
  EXPECT_EQ(decoded[2], 0.0f);
}

TEST_P(Moments8, DenormalsAndWhatWouldDecodeToOneAreZero) {
  for (const Moment8 kind : kKinds) {
    const std::vector<float> values = {FLT_MIN * 4, FLT_MIN / 2, FLT_MIN * 1.01f, 0.0f};
    const Encoded encoded = encode(values, kind);
    EXPECT_EQ(encoded.codes[1], 0);
    for (const float x : decode(encoded, kind)) EXPECT_TRUE(x == 0 || x >= FLT_MIN) << x;
    EXPECT_EQ(encode({FLT_MIN / 2}, kind).scales[0], 0.0f);
  }
}

TEST_P(Moments8, AGranuleWithNaNOrASignedInfDecodesToNaNAndItsNeighboursDoNot) {
  for (const Moment8 kind : kKinds) {
    for (const float bad : {INFINITY, std::bit_cast<float>(0x7F812345u)}) {
      if (kind == Moment8::kUnsigned && bad == INFINITY) continue;
      std::vector<float> values(3 * kGranuleElements, 0.5f);
      values[kGranuleElements + 77] = bad;
      const Encoded encoded = encode(values, kind);
      const std::vector<float> decoded = decode(encoded, kind);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool in_granule = i / kGranuleElements == 1;
        EXPECT_EQ(std::isnan(decoded[i]), in_granule);
      }
      EXPECT_EQ(bits_of(encoded.scales)[1], 0x7FC00000u);
      EXPECT_EQ(encode(decoded, kind).codes, encoded.codes);
    }
  }
}

TEST_P(Moments8, AnUnsignedInfIsTheLargestFloatAndNoNaNOfItsGranule) {
  std::vector<float> values(3 * kGranuleElements, 0.5f);
  values[kGranuleElements + 77] = INFINITY;
  values[kGranuleElements + 78] = FLT_MAX;
  values[kGranuleElements + 79] = FLT_MAX / 3;
  std::vector<float> finite = values;
  finite[kGranuleElements + 77] = FLT_MAX;
  const Encoded encoded = encode(values, Moment8::kUnsigned);
  EXPECT_EQ(encoded.codes, encode(finite, Moment8::kUnsigned).codes);
  EXPECT_EQ(encoded.scales, (std::vector<float>{0.5f, FLT_MAX, 0.5f}));
  const std::vector<float> decoded = decode(encoded, Moment8::kUnsigned);
  EXPECT_EQ(decoded[kGranuleElements + 77], FLT_MAX);
  EXPECT_EQ(decoded[kGranuleElements + 78], FLT_MAX);
  EXPECT_NEAR(decoded[kGranuleElements + 79], FLT_MAX / 3, FLT_MAX / 3 * 0.036f);
  EXPECT_TRUE(std::ranges::all_of(decoded, [](float x) { return x > 0 && x <= FLT_MAX; }));
  values[kGranuleElements + 80] = NAN;
  EXPECT_EQ(bits_of(encode(values, Moment8::kUnsigned).scales)[1], 0x7FC00000u);
}

TEST_P(Moments8, TouchesNothingBeyondAnyLength) {
  for (const Moment8 kind : kKinds) {
    std::mt19937_64 random(8);
    for (const std::size_t n : {0, 1, 7, 15, 16, 17, 33, 255, 256, 257, 300, 513}) {
      const std::vector<float> values = random_values(random, n, kind);
      const std::size_t granules = (n + kGranuleElements - 1) / kGranuleElements;
      Guarded<float> source(values), target(values), scales{std::vector<float>(granules)};
      Guarded<std::uint8_t> codes{std::vector<std::uint8_t>(n)};
      encode_moments8(codes.data(), scales.data(), source.data(), n, kind);
      decode_moments8(target.data(), codes.data(), scales.data(), n, kind);
      EXPECT_EQ(codes.values(), encode(values, kind).codes);
      EXPECT_EQ(target.values(), decode(encode(values, kind), kind));
      EXPECT_TRUE(source.intact() && target.intact() && scales.intact() && codes.intact());
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
