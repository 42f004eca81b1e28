#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sluice/optimizer.hpp"
#include "sluice/status.hpp"

namespace sluice::store {

/// Numbers that are kept of an optimizer, whichever it is: those it has in the order of its fields, then
/// zeros.
inline constexpr std::size_t kOptimizerNumbers = 8;
using OptimizerNumbers = std::array<double, kOptimizerNumbers>;

OptimizerNumbers numbers_of(const Optimizer& optimizer);

/// Whether this build has the alternative. Errors: kUnimplemented with its number.
Status check_alternative(std::uint32_t alternative);

/// Errors: as check_alternative(); kDataLoss for a number that the optimizer does not have and that is not
/// zero.
Result<Optimizer> optimizer_from(std::uint32_t alternative, const OptimizerNumbers& numbers);

}  // namespace sluice::store
