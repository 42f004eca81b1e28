#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/update.hpp"
#include "sluice/optimizer.hpp"

namespace sluice::kernels {

/// An update rule for all policies; each is a file of its name (adamw.cpp …), listed in update.cpp.
struct UpdateRule {
  /// Sets factors.numbers for the step `step_count` of the optimizer, which is this rule's.
  void (*set_numbers)(Factors& factors, const Optimizer& optimizer, double step_count);
  /// As kernels::update, without hashes, in a default floating-point environment.
  std::uint64_t (*update)(const Run& run, const Factors& factors, const Dither& dither);
};

extern const UpdateRule kAdamWRule;
extern const UpdateRule kAdamRule;
extern const UpdateRule kAdagradRule;
extern const UpdateRule kLionRule;
extern const UpdateRule kSgdRule;

}  // namespace sluice::kernels
