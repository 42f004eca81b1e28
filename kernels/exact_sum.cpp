#include "kernels/exact_sum.hpp"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace sluice::kernels {
namespace {

constexpr std::size_t kLimbBits = 64;
constexpr int kMantissaBits = 53;

/// A term as two limbs at `limb` and `limb + 1`; high < 2^53, so high and a carry never overflow.
struct Placed {
  std::size_t limb;
  std::uint64_t low;
  std::uint64_t high;
};

[[noreturn]] void refuse(double term) {
  std::fprintf(stderr, "sluice: an exact sum takes finite terms in [0, 2^340), not %g\n", term);
  std::abort();
}

Placed place(double term) {
  if (!(term >= 0.0 && term < 0x1p340)) refuse(term);
  const auto bits = std::bit_cast<std::uint64_t>(term + 0.0);  // -0 becomes +0
  const int exponent = static_cast<int>(bits >> (kMantissaBits - 1));
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << (kMantissaBits - 1)) - 1);
  if (exponent != 0) mantissa |= std::uint64_t{1} << (kMantissaBits - 1);
  // term = mantissa * 2^(exponent - 1075); 2^-298 is bit 0, so 1.0 (exponent 1023) has its mantissa at bit
  // 246.
  const int shift = exponent - 1075 - ExactSum::kLowestBit;
  if (shift < 0) return {0, shift > -kMantissaBits ? mantissa >> -shift : 0, 0};
  const std::size_t limb = static_cast<std::size_t>(shift) / kLimbBits;
  const std::size_t offset = static_cast<std::size_t>(shift) % kLimbBits;
  return {limb, mantissa << offset, offset == 0 ? 0 : mantissa >> (kLimbBits - offset)};
}

}  // namespace

void ExactSum::add(double term) {
  const Placed placed = place(term);
  limbs_[placed.limb] += placed.low;
  std::uint64_t carry = placed.high + (limbs_[placed.limb] < placed.low ? 1 : 0);
  for (std::size_t i = placed.limb + 1; carry != 0 && i < kLimbs; ++i) {
    limbs_[i] += carry;
    carry = limbs_[i] < carry ? 1 : 0;
  }
}

void ExactSum::subtract(double term) {
  const Placed placed = place(term);
  std::uint64_t borrow = placed.high + (limbs_[placed.limb] < placed.low ? 1 : 0);
  limbs_[placed.limb] -= placed.low;
  for (std::size_t i = placed.limb + 1; borrow != 0 && i < kLimbs; ++i) {
    const std::uint64_t before = limbs_[i];
    limbs_[i] = before - borrow;
    borrow = before < borrow ? 1 : 0;
  }
}

void ExactSum::merge(const ExactSum& other) {
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < kLimbs; ++i) {
    const std::uint64_t partial = limbs_[i] + carry;
    carry = partial < carry ? 1 : 0;
    limbs_[i] = partial + other.limbs_[i];
    carry += limbs_[i] < partial ? 1 : 0;
  }
}

double ExactSum::value() const {
  const bool negative = (limbs_[kLimbs - 1] >> (kLimbBits - 1)) != 0;
  Limbs magnitude = limbs_;
  if (negative) {
    std::uint64_t carry = 1;
    for (std::uint64_t& limb : magnitude) {
      limb = ~limb + carry;
      carry = carry != 0 && limb == 0 ? 1 : 0;
    }
  }
  std::size_t top = kLimbs - 1;
  while (top > 0 && magnitude[top] == 0) --top;
  const std::size_t width = top * kLimbBits + static_cast<std::size_t>(std::bit_width(magnitude[top]));

  std::uint64_t mantissa = magnitude[0];
  std::size_t shift = 0;
  if (width > kMantissaBits) {
    shift = width - kMantissaBits;
    const std::size_t limb = shift / kLimbBits;
    const std::size_t offset = shift % kLimbBits;
    mantissa = magnitude[limb] >> offset;
    if (offset != 0 && limb + 1 < kLimbs) mantissa |= magnitude[limb + 1] << (kLimbBits - offset);
    mantissa &= (std::uint64_t{1} << kMantissaBits) - 1;

    const std::size_t half_limb = (shift - 1) / kLimbBits;
    const std::uint64_t half_bit = std::uint64_t{1} << ((shift - 1) % kLimbBits);
    bool below_half = (magnitude[half_limb] & (half_bit - 1)) != 0;
    for (std::size_t i = 0; i < half_limb; ++i) below_half = below_half || magnitude[i] != 0;
    const bool half = (magnitude[half_limb] & half_bit) != 0;
    if (half && (below_half || (mantissa & 1) != 0)) ++mantissa;
  }
  const double value = std::ldexp(static_cast<double>(mantissa), static_cast<int>(shift) + kLowestBit);
  return negative ? -value : value;
}

}  // namespace sluice::kernels
