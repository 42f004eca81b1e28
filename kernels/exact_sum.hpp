#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

/// A sum of doubles without rounding, so that it is the same in any order and any grouping.
/// Invariant: value = (limbs read as one little-endian two's-complement integer of 640 bits) * 2^-298, which
/// takes every sum of squares of finite floats exactly: the least square is 2^-298, 2^78 granules of FLT_MAX
/// fit. Threads: as an int.
class ExactSum {
 public:
  static constexpr std::size_t kLimbs = 10;
  static constexpr int kLowestBit = -298;
  using Limbs = std::array<std::uint64_t, kLimbs>;

  ExactSum() = default;

  /// The sum whose limbs() were `limbs`, as when they come from another rank.
  explicit ExactSum(const Limbs& limbs) : limbs_(limbs) {}

  /// Adds `term`, or takes it away.
  /// Requires: term is finite, 0 <= term < 2^340; bits below 2^-298 are dropped (a sum of squares of floats
  /// has none). Cost: two limbs and the carry beyond them, which is rare.
  void add(double term);
  void subtract(double term);

  /// Adds all that `other` holds; exact, so merges in any order give the same limbs.
  void merge(const ExactSum& other);

  /// The double nearest to the sum, ties to even.
  double value() const;

  /// The limbs, least significant first, to be exchanged between ranks.
  const Limbs& limbs() const { return limbs_; }

  friend bool operator==(const ExactSum&, const ExactSum&) = default;

 private:
  Limbs limbs_{};
};

}  // namespace sluice::kernels
