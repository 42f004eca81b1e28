#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::kernels {

/// A value and how far from it an fp32 computation of the same formula may be, whatever its order of products and sums
/// and whether they are fused: each operation adds its rounding to what its operands bring with them.
/// Invariant: |computed - value| <= error, as long as nothing overflows.
struct Bounded {
  double value = 0;
  double error = 0;
};

/// Half a unit in the last place, relative to a value, and what flushing to zero takes away at most.
inline constexpr double kRounding = 0x1p-24;
inline constexpr double kFlushed = std::numeric_limits<float>::min();

/// The same after an operation whose intermediate values are at most `magnitude`.
inline Bounded rounded(double value, double error, double magnitude, int roundings = 1) {
  return {value, error + roundings * kRounding * magnitude + kFlushed};
}

/// c * x, with c rounded to fp32 first.
inline Bounded scaled(double c, const Bounded& x) {
  return rounded(c * x.value, std::abs(c) * x.error, std::abs(c * x.value), 2);
}

inline Bounded sum(const Bounded& x, const Bounded& y) {
  return rounded(x.value + y.value, x.error + y.error, std::abs(x.value) + std::abs(y.value));
}

inline Bounded square(const Bounded& x) {
  return rounded(x.value * x.value, (2 * std::abs(x.value) + x.error) * x.error, x.value * x.value);
}

/// b * m + (1 - b) * g: as that, or as m + (1 - b) * (g - m), which has five roundings on its longest way.
inline Bounded blended(double b, const Bounded& m, const Bounded& g) {
  return rounded(b * m.value + (1 - b) * g.value, b * m.error + (1 - b) * g.error,
                 std::abs(m.value) + std::abs(g.value) * (1 - b), 5);
}

/// |sqrt(a) - sqrt(b)| <= |a - b| / sqrt(b), and at most sqrt(|a - b|).
inline Bounded root(const Bounded& x) {
  const double value = std::sqrt(x.value);
  return rounded(value, value > 0 ? std::min(x.error / value, std::sqrt(x.error)) : std::sqrt(x.error),
                 value);
}

/// Requires: |y.value| > y.error.
inline Bounded quotient(const Bounded& x, const Bounded& y) {
  const double value = x.value / y.value;
  return rounded(value, (x.error + std::abs(value) * y.error) / (std::abs(y.value) - y.error),
                 std::abs(value));
}

}  // namespace sluice::kernels
