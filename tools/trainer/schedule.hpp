#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace sluice::trainer {

/// The learning rate's way: up in a line, down in half a cosine to a tenth.
struct Schedule {
  double peak = 0;
  std::uint64_t warmup_steps = 0;
  std::uint64_t steps = 0;

  /// For steps counted from 0.
  double at(std::uint64_t step) const {
    if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    constexpr double kFloor = 0.1;
    const double rest =
        static_cast<double>(std::max<std::uint64_t>(steps - std::min(steps, warmup_steps), 1));
    const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / rest);
    return peak * (kFloor + (1 - kFloor) * 0.5 * (1 + std::cos(progress * std::numbers::pi)));
  }
};

}  // namespace sluice::trainer
