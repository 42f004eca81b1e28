#pragma once

#include <bit>
#include <cfloat>
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

/// The code of kernels/moments8.hpp as lines, one a decade. What a code stands for is convex in the code and what codes
/// a value is concave in the value, so that the greatest and the least of the lines are the decade's own:
///   fraction(c) = max(0, max_d((c + 1/2) * slope[d] - offset[d]))
///   code(y)     = floor(min_d(y * gain[d] + base[d]))
/// A slope has 15 significant bits and an offset is a multiple of half the slope's last one, so that a fraction is
/// computed without rounding, on every target alike. The top line is laid through 1 at the largest code.
struct Moment8Lines {
  static constexpr std::size_t kMost = 8;
  std::size_t decades = 0;
  std::uint32_t largest = 0;  ///< code: 2^decades - 1
  float least_scale = 0;      ///< from which on no fraction but 0 is denormal
  float slope[kMost] = {}, offset[kMost] = {};
  float gain[kMost] = {}, base[kMost] = {};
};

constexpr Moment8Lines moment8_lines(std::size_t decades) {
  Moment8Lines lines;
  lines.decades = decades;
  lines.largest = (1u << decades) - 1;
  const double top_code = lines.largest + 0.5;
  double buckets = 1u << (decades - 1);  // of the decade
  double floor = 0.1;                    // its lower end
  const double top = floor * (1 + 9 * (buckets - 0.5) / buckets);
  for (std::size_t d = decades; d-- > 0; buckets /= 2, floor /= 10) {
    const double slope = floor * 9 / buckets / top;
    lines.slope[d] =
        std::bit_cast<float>((std::bit_cast<std::uint32_t>(static_cast<float>(slope)) + 0x100) & 0xFFFFFE00u);
    const float lowest_bit =
        std::bit_cast<float>(std::bit_cast<std::uint32_t>(lines.slope[d]) & 0xFF800000u) * 0x1p-15f;
    const double ideal = d + 1 == decades ? top_code * lines.slope[d] - 1 : 8 * floor / top;
    lines.offset[d] = static_cast<float>(static_cast<std::uint64_t>(ideal / lowest_bit + 0.5)) * lowest_bit;
    lines.gain[d] = static_cast<float>(1 / slope);
    lines.base[d] = static_cast<float>(buckets * 8 / 9);
  }
  lines.least_scale = FLT_MIN / (1.5f * lines.slope[0] - lines.offset[0]) * 1.001f;
  return lines;
}

inline constexpr Moment8Lines kSignedLines = moment8_lines(7);
inline constexpr Moment8Lines kUnsignedLines = moment8_lines(8);

}  // namespace sluice::kernels
