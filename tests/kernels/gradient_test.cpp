#include "kernels/gradient.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>
#include <vector>

#include "each_isa.hpp"
#include "guarded.hpp"
#include "kernels/constants.hpp"
#include "kernels/convert.hpp"

namespace sluice::kernels {
namespace {

class Gradient : public OnEachIsa {};
SLUICE_ON_EACH_ISA(Gradient);

/// One contribution in a trainer's dtype, and what it means in float.
struct Contribution {
  GradientDType type;
  std::vector<std::uint8_t> bytes;
  std::vector<float> values;
};

Contribution contribution(GradientDType type, const std::vector<float>& wanted) {
  const std::size_t n = wanted.size();
  if (type == GradientDType::kF32) {
    std::vector<std::uint8_t> bytes(n * sizeof(float));
    if (n != 0) std::memcpy(bytes.data(), wanted.data(), bytes.size());
    return {type, bytes, wanted};
  }
  std::vector<std::uint16_t> halves(n);
  std::vector<float> values(n);
  if (type == GradientDType::kBF16) {
    f32_to_bf16(halves.data(), wanted.data(), n);
    bf16_to_f32(values.data(), halves.data(), n);
  } else {
    f32_to_f16(halves.data(), wanted.data(), n);
    f16_to_f32(values.data(), halves.data(), n);
  }
  std::vector<std::uint8_t> bytes(n * sizeof(std::uint16_t));
  if (n != 0) std::memcpy(bytes.data(), halves.data(), bytes.size());
  return {type, bytes, values};
}

constexpr GradientDType kTypes[] = {GradientDType::kF32, GradientDType::kBF16, GradientDType::kF16};

std::vector<float> random_floats(std::mt19937_64& random, std::size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> floats(count);
  for (float& x : floats) x = std::ldexp(normal(random), static_cast<int>(random() % 20) - 10);
  return floats;
}

/// The norm's definition: 16 lanes in double, halves onto halves, granules added exactly.
NormDelta norm_of(const std::vector<float>& gradient) {
  NormDelta norm;
  for (std::size_t begin = 0; begin < gradient.size(); begin += kGranuleElements) {
    double lanes[16] = {};
    for (std::size_t i = begin; i < std::min(begin + kGranuleElements, gradient.size()); ++i) {
      lanes[(i - begin) % 16] += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    }
    for (const std::size_t half : {8u, 4u, 2u, 1u}) {
      for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    if (std::isfinite(lanes[0])) {
      norm.squares.add(lanes[0]);
    } else {
      ++norm.nonfinite_granules;
    }
  }
  return norm;
}

TEST_P(Gradient, StoreThenAddGivesFloatSumsAndTheirNormAtEveryLength) {
  std::mt19937_64 random(1);
  for (const GradientDType type : kTypes) {
    for (std::size_t n = 0; n <= 600; n += n < 70 ? 1 : 53) {
      SCOPED_TRACE(n);
      const Contribution first = contribution(type, random_floats(random, n));
      const Contribution second = contribution(type, random_floats(random, n));
      Guarded<float> target(std::vector<float>(n, NAN), n % 2);
      Guarded<std::uint8_t> first_source(first.bytes), second_source(second.bytes);
      NormDelta norm;
      accumulate_f32(target.data(), first_source.data(), type, n, Accumulate::kStore, &norm);
      EXPECT_EQ(bits_of(target.values()), bits_of(first.values));
      EXPECT_EQ(norm.squares, norm_of(first.values).squares);
      accumulate_f32(target.data(), second_source.data(), type, n, Accumulate::kAdd, &norm);
      std::vector<float> sum(n);
      for (std::size_t i = 0; i < n; ++i) sum[i] = first.values[i] + second.values[i];
      EXPECT_EQ(bits_of(target.values()), bits_of(sum));
      EXPECT_EQ(norm.squares, norm_of(sum).squares);
      EXPECT_EQ(norm.nonfinite_granules, 0u);
      EXPECT_TRUE(target.intact() && first_source.intact() && second_source.intact());
    }
  }
}

TEST_P(Gradient, ANormIsNotNeeded) {
  std::mt19937_64 random(2);
  const Contribution only = contribution(GradientDType::kBF16, random_floats(random, 777));
  std::vector<float> target(777);
  std::vector<std::uint16_t> rounded(777);
  accumulate_f32(target.data(), only.bytes.data(), only.type, 777, Accumulate::kStore, nullptr);
  accumulate_f32(target.data(), only.bytes.data(), only.type, 777, Accumulate::kAdd, nullptr);
  store_bf16(rounded.data(), only.bytes.data(), only.type, 777, nullptr);
  for (std::size_t i = 0; i < target.size(); ++i) {
    EXPECT_EQ(target[i], 2 * only.values[i]);
    EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(rounded[i]) << 16), only.values[i]);
  }
}

TEST_P(Gradient, NormOfContributionsInRandomPiecesEqualsTheNormOfTheSum) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::size_t granules = 1 + random() % 20;
    const std::size_t n = granules * kGranuleElements - random() % kGranuleElements;
    std::vector<float> target(n);
    NormDelta total;
    for (int round = 0; round < 4; ++round) {
      const Contribution piece = contribution(kTypes[random() % 3], random_floats(random, n));
      const std::size_t element_bytes = piece.bytes.size() / n;
      std::vector<std::size_t>
          starts;  // pieces begin at granules, and come in any order, each with a delta of its own
      for (std::size_t i = 0; i < granules; ++i) {
        if (i == 0 || random() % 2 == 0) starts.push_back(i * kGranuleElements);
      }
      std::vector<std::size_t> order(starts.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        const std::size_t end = i + 1 < starts.size() ? starts[i + 1] : n;
        NormDelta delta;
        accumulate_f32(target.data() + starts[i], piece.bytes.data() + starts[i] * element_bytes, piece.type,
                       end - starts[i], round == 0 ? Accumulate::kStore : Accumulate::kAdd, &delta);
        total.merge(delta);
      }
      EXPECT_EQ(total.squares, norm_of(target).squares);
    }
  }
}

TEST_P(Gradient, NormOfTheGreatestAndTheLeastFloatsIsFinite) {
  std::vector<float> source(100 * kGranuleElements, FLT_MAX);
  std::vector<float> target(source.size());
  NormDelta norm;
  accumulate_f32(target.data(), source.data(), GradientDType::kF32, source.size(), Accumulate::kStore, &norm);
  EXPECT_EQ(norm.nonfinite_granules, 0u);
  EXPECT_NEAR(std::sqrt(norm.squares.value()) / (160.0 * FLT_MAX), 1.0, 1e-15);
  std::fill(source.begin(), source.end(), -FLT_MAX);  // the sum is zero: nothing of the old norm may stay
  accumulate_f32(target.data(), source.data(), GradientDType::kF32, source.size(), Accumulate::kAdd, &norm);
  EXPECT_EQ(norm.squares, ExactSum());
  std::fill(source.begin(), source.end(), FLT_TRUE_MIN);
  accumulate_f32(target.data(), source.data(), GradientDType::kF32, source.size(), Accumulate::kAdd, &norm);
  EXPECT_EQ(norm.squares.value(), std::ldexp(25600.0, -298));
}

TEST_P(Gradient, ANonFiniteGranuleIsCountedAndNeverSummed) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> source(3 * kGranuleElements, 1.0f);
    source[300] = bad;
    std::vector<float> target(source.size());
    NormDelta norm;
    accumulate_f32(target.data(), source.data(), GradientDType::kF32, source.size(), Accumulate::kStore,
                   &norm);
    EXPECT_EQ(norm.nonfinite_granules, 1u);
    EXPECT_EQ(norm.squares.value(), 512.0);
    source[300] = 1.0f;
    accumulate_f32(target.data(), source.data(), GradientDType::kF32, source.size(), Accumulate::kAdd, &norm);
    EXPECT_GE(norm.nonfinite_granules, 1u);
    EXPECT_EQ(norm.squares.value(), 2048.0);
  }
}

TEST_P(Gradient, ASumThatOverflowsIsCountedAndItsOldSquaresGo) {
  const std::vector<float> source(10, FLT_MAX);
  std::vector<float> target(source.size());
  NormDelta norm;
  accumulate_f32(target.data(), source.data(), GradientDType::kF32, 10, Accumulate::kStore, &norm);
  accumulate_f32(target.data(), source.data(), GradientDType::kF32, 10, Accumulate::kAdd, &norm);
  EXPECT_EQ(norm.nonfinite_granules, 1u);
  EXPECT_EQ(norm.squares, ExactSum());
}

TEST_P(Gradient, StoreBf16RoundsOnceAndSumsTheRoundedValues) {
  std::mt19937_64 random(4);
  for (const GradientDType type : kTypes) {
    for (std::size_t n = 0; n <= 600; n += n < 70 ? 1 : 53) {
      SCOPED_TRACE(n);
      const Contribution only = contribution(type, random_floats(random, n));
      std::vector<std::uint16_t> expected(n);
      std::vector<float> rounded(n);
      f32_to_bf16(expected.data(), only.values.data(), n);
      bf16_to_f32(rounded.data(), expected.data(), n);
      Guarded<std::uint16_t> target(std::vector<std::uint16_t>(n), n % 3);
      Guarded<std::uint8_t> source(only.bytes);
      NormDelta norm;
      store_bf16(target.data(), source.data(), type, n, &norm);
      EXPECT_EQ(target.values(), expected);
      EXPECT_EQ(norm.squares, norm_of(rounded).squares);
      EXPECT_TRUE(target.intact());
    }
  }
}

TEST_P(Gradient, StoreBf16CountsAFiniteValueThatRoundsToInf) {
  const float source[2] = {1.0f, FLT_MAX};
  std::uint16_t target[2] = {};
  NormDelta norm;
  store_bf16(target, source, GradientDType::kF32, 2, &norm);
  EXPECT_EQ(target[1], 0x7F80);
  EXPECT_EQ(norm.nonfinite_granules, 1u);
  EXPECT_EQ(norm.squares, ExactSum());
}

}  // namespace
}  // namespace sluice::kernels
