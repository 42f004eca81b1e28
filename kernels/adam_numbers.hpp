#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>

#include "kernels/update.hpp"

namespace sluice::kernels {

/// Factors::numbers of AdamW and Adam.
struct AdamNumber {
  enum : std::size_t {
    kBeta1,          // b1
    kOneMinusBeta1,  // 1 - b1
    kBeta2,
    kOneMinusBeta2,
    kRootScale,  // 1 / sqrt(1 - b2^t)
    kEps,        // at least FLT_MIN, so that 0 / eps is 0
    kStep,       // lr / (1 - b1^t)
    kDecay,      // AdamW: 1 - lr * weight_decay; Adam: weight_decay
  };
};

/// All but kDecay. `settings` is an AdamW or an Adam, t the step count.
template <class Settings>
void set_adam_numbers(Factors& factors, const Settings& settings, double t) {
  const auto set = [&](std::size_t number, double value) {
    factors.numbers[number] = static_cast<float>(value);
  };
  set(AdamNumber::kBeta1, settings.beta1);
  set(AdamNumber::kOneMinusBeta1, 1.0 - settings.beta1);
  set(AdamNumber::kBeta2, settings.beta2);
  set(AdamNumber::kOneMinusBeta2, 1.0 - settings.beta2);
  set(AdamNumber::kRootScale, 1.0 / std::sqrt(1.0 - std::pow(settings.beta2, t)));
  factors.numbers[AdamNumber::kEps] = std::max(static_cast<float>(settings.eps), FLT_MIN);
  set(AdamNumber::kStep, settings.lr / (1.0 - std::pow(settings.beta1, t)));
}

}  // namespace sluice::kernels
