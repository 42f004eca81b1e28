#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::trainer {

/// e^x within 2 units in the last place, saturating outside [-60, 60]: beyond what a sum with 1 can tell, and so far
/// from the ends of fp32 that products with it stay clear of slow denormal numbers.
/// Written without branches, so that loops over it become vector code on any instruction set.
/// Source: Cephes expf (S. Moshier): x = n ln 2 + r, e^r by a polynomial, 2^n through the exponent bits.
inline float exponential(float x) {
  x = std::min(std::max(x, -60.0F), 60.0F);
  constexpr float kRound = 0x1.8p23F;  // added and taken off, it rounds to an integer
  const float n = (x * 1.44269504F + kRound) - kRound;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float e_r = p * r * r + r + 1.0F;
  return e_r * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

inline constexpr std::size_t kLanes = 16;

/// combine(...) of term(0) .. term(count - 1) over 16 fixed lanes, which begin as `first`: vector code with
/// one fixed order of operations.
template <class Term, class Combine>
float reduce_in_lanes(std::size_t count, float first, const Term& term, const Combine& combine) {
  std::array<float, kLanes> lanes;
  lanes.fill(first);
  const std::size_t whole = count - count % kLanes;
  for (std::size_t start = 0; start < whole; start += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = combine(lanes[lane], term(start + lane));
  }
  for (std::size_t i = whole; i < count; ++i) lanes[i - whole] = combine(lanes[i - whole], term(i));
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = combine(lanes[lane], lanes[lane + half]);
  }
  return lanes[0];
}

template <class Term>
float sum_in_lanes(std::size_t count, const Term& term) {
  return reduce_in_lanes(count, 0.0F, term, [](float a, float b) { return a + b; });
}

/// The largest of a row that is not empty.
inline float largest(std::span<const float> row) {
  const float* const values = row.data();
  return reduce_in_lanes(
      row.size(), row[0], [=](std::size_t i) { return values[i]; },
      [](float a, float b) { return std::max(a, b); });
}

}  // namespace sluice::trainer
