#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace sluice::trainer {

/// How the learning rate goes from its peak to its end.
enum class Decline : std::uint8_t { kConstant, kCosine, kLinear };
inline constexpr Decline kDeclines[] = {Decline::kConstant, Decline::kCosine, Decline::kLinear};

/// "constant", "cosine", "linear".
constexpr std::string_view decline_name(Decline decline) {
  constexpr std::string_view kNames[] = {"constant", "cosine", "linear"};
  return kNames[static_cast<std::size_t>(decline)];
}

/// The learning rate's way: up in a line to its peak, then down to a part of it at the last step.
/// Invariant: at() is the peak at step warmup_steps, and after it least * peak <= at() <= peak.
struct Schedule {
  double peak = 0;
  std::uint64_t warmup_steps = 0;
  std::uint64_t steps = 0;
  Decline decline = Decline::kCosine;
  double least = 0.1;  ///< of the peak, 0..1; a constant rate stays at its peak

  /// For steps counted from 0. The end is reached after the last of `steps`.
  double at(std::uint64_t step) const {
    if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    const double rest =
        static_cast<double>(std::max<std::uint64_t>(steps - std::min(steps, warmup_steps), 1));
    const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / rest);
    switch (decline) {
      case Decline::kConstant:
        return peak;
      case Decline::kCosine:
        return peak * (least + (1 - least) * 0.5 * (1 + std::cos(progress * std::numbers::pi)));
      case Decline::kLinear:
        return peak * (least + (1 - least) * (1 - progress));
    }
    return peak;
  }
};

}  // namespace sluice::trainer
