#include "kernels/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cfloat>
#include <cmath>
#include <random>
#include <vector>

namespace sluice::kernels {
namespace {

constexpr std::size_t kBits = 640;

/// Long addition one bit at a time.
class LongSum {
 public:
  void add(double term) {
    int exponent = 0;
    const double fraction = std::frexp(term, &exponent);
    const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
    for (int bit = 0; bit < 53; ++bit) {
      if ((mantissa >> bit & 1) != 0) add_bit(static_cast<std::size_t>(exponent - 53 + bit + 298));
    }
  }
  ExactSum::Limbs limbs() const {
    ExactSum::Limbs limbs{};
    for (std::size_t i = 0; i < kBits; ++i) limbs[i / 64] |= std::uint64_t{bits_[i]} << (i % 64);
    return limbs;
  }

 private:
  void add_bit(std::size_t i) {
    for (; bits_[i]; ++i) bits_[i] = false;
    bits_[i] = true;
  }
  std::bitset<kBits> bits_;
};

/// Sums of squares as granules have them, over the whole range of floats.
std::vector<double> random_terms(std::mt19937_64& random, std::size_t count) {
  std::uniform_int_distribution<int> exponent(-149, 127);
  std::uniform_real_distribution<float> fraction(1.0f, 2.0f);
  std::vector<double> terms;
  while (terms.size() < count) {
    const double x = std::ldexp(fraction(random), exponent(random));
    const auto rounded = static_cast<double>(static_cast<float>(x));
    terms.push_back(rounded * rounded);
  }
  return terms;
}

ExactSum sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum;
}

TEST(ExactSum, AgreesWithLongAddition) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::vector<double> terms = random_terms(random, 500);
    LongSum expected;
    for (const double term : terms) expected.add(term);
    EXPECT_EQ(sum_of(terms).limbs(), expected.limbs());
  }
}

TEST(ExactSum, IsTheSameInEveryOrderAndGrouping) {
  std::mt19937_64 random(7);
  std::vector<double> terms = random_terms(random, 1000);
  const ExactSum expected = sum_of(terms);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(terms.begin(), terms.end(), random);
    std::vector<ExactSum> parts(1 + random() % 7);
    for (const double term : terms) parts[random() % parts.size()].add(term);
    ExactSum merged;
    for (const ExactSum& part : parts) merged.merge(part);
    EXPECT_EQ(merged, expected);
  }
}

TEST(ExactSum, SubtractUndoesAddInAnyOrder) {
  std::mt19937_64 random(11);
  std::vector<double> kept = random_terms(random, 100);
  std::vector<double> passing = random_terms(random, 300);
  ExactSum sum;
  for (const double term : passing) sum.subtract(term);
  for (const double term : kept) sum.add(term);
  std::shuffle(passing.begin(), passing.end(), random);
  for (const double term : passing) sum.add(term);
  EXPECT_EQ(sum, sum_of(kept));
}

TEST(ExactSum, CarriesAndBorrowsThroughEveryLimb) {
  ExactSum sum;
  sum.subtract(0x1p-298);
  for (const std::uint64_t limb : sum.limbs()) EXPECT_EQ(limb, ~std::uint64_t{0});
  EXPECT_EQ(sum.value(), -0x1p-298);
  sum.add(0x1p-298);
  EXPECT_EQ(sum, ExactSum());
}

TEST(ExactSum, ValueIsTheNearestDouble) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 100000; ++round) {
    const double x = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52,
                                static_cast<int>(random() % 200) - 100);
    // Near enough for the sum to need rounding, some of them ties.
    const double y = std::ldexp(static_cast<double>(1 + random() % 8),
                                std::ilogb(x) - 56 + static_cast<int>(random() % 8));
    ExactSum sum;
    sum.add(x);
    EXPECT_EQ(sum.value(), x);
    sum.add(y);
    EXPECT_EQ(sum.value(), x + y) << std::hexfloat << x << " + " << y;
    ExactSum difference;
    difference.add(x);
    difference.subtract(y);
    EXPECT_EQ(difference.value(), x - y) << std::hexfloat << x << " - " << y;
  }
}

TEST(ExactSum, ValueSeesTheLeastBitBehindATie) {
  ExactSum sum;
  sum.add(1.0);
  sum.add(0x1p-53);
  EXPECT_EQ(sum.value(), 1.0);
  sum.add(0x1p-298);
  EXPECT_EQ(sum.value(), 1.0 + DBL_EPSILON);
}

TEST(ExactSum, HoldsManyGranulesOfTheGreatestAndTheLeastFloat) {
  const double greatest = 256.0 * (static_cast<double>(FLT_MAX) * FLT_MAX);
  const double least = static_cast<double>(FLT_TRUE_MIN) * FLT_TRUE_MIN;
  ExactSum sum;
  for (int i = 0; i < 1000; ++i) sum.add(greatest);
  sum.add(least);
  ExactSum doubled;  // 1000 * 2^48 granules of FLT_MAX
  doubled.merge(sum);
  for (int i = 0; i < 48; ++i) doubled.merge(ExactSum(doubled));
  EXPECT_EQ(doubled.value(), std::ldexp(1000.0 * greatest, 48));
  for (int i = 0; i < 1000; ++i) sum.subtract(greatest);
  EXPECT_EQ(sum.value(), least);
}

TEST(ExactSum, LimbsCarryTheSumToAnotherRank) {
  std::mt19937_64 random(17);
  const ExactSum sum = sum_of(random_terms(random, 50));
  EXPECT_EQ(ExactSum(sum.limbs()), sum);
}

TEST(ExactSumDeathTest, RefusesWhatIsNotATermOfASum) {
  ExactSum sum;
  EXPECT_DEATH(sum.add(-1.0), "not -1");
  EXPECT_DEATH(sum.add(NAN), "nan");
  EXPECT_DEATH(sum.subtract(INFINITY), "inf");
}

}  // namespace
}  // namespace sluice::kernels
