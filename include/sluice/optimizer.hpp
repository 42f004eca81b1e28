#pragma once

#include <variant>

#include "sluice/status.hpp"

namespace sluice {

/// AdamW with decoupled weight decay; defaults are PyTorch's.
/// Requires: lr and weight_decay finite and >= 0; betas in [0, 1); eps finite and > 0.
/// Source: Loshchilov and Hutter 2019, algorithm 2; torch/optim/adamw.py.
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

/// The update rule of a group and its numbers.
using Optimizer = std::variant<AdamW>;

/// Errors: kInvalidArgument with the field's name, its value and the accepted range.
SLUICE_API Status validate(const Optimizer& optimizer);

}  // namespace sluice
