#pragma once

#include <algorithm>
#include <string_view>

#include "sluice/optimizer.hpp"

namespace sluice::trainer {

/// The number of that name, as a rule knows it; null where the rule has none.
inline const OptimizerNumber* find_number(const OptimizerKind& kind, std::string_view name) {
  const auto number = std::ranges::find(kind.numbers, name, &OptimizerNumber::name);
  return number == kind.numbers.end() ? nullptr : &*number;
}

/// The rate that a schedule changes: every rule has one.
inline double learning_rate(const Optimizer& optimizer) {
  return find_number(kind_of(optimizer), "lr")->get(optimizer);
}

/// The same rule with one of its numbers changed; a rule that has no such number stays as it is.
inline Optimizer with_number(Optimizer optimizer, std::string_view name, double value) {
  if (const OptimizerNumber* number = find_number(kind_of(optimizer), name)) number->set(optimizer, value);
  return optimizer;
}

}  // namespace sluice::trainer
