#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice {

/// Adam with decoupled weight decay. Defaults of all rules are PyTorch's, or their paper's.
/// Requires: lr and weight_decay finite and >= 0; betas in [0, 1); eps finite and > 0.
/// Source: Loshchilov and Hutter 2019, algorithm 2; torch/optim/adamw.py.
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

/// Adam; weight decay is added to the gradient.
/// Requires: as AdamW. Source: Kingma and Ba 2015, algorithm 1; torch/optim/adam.py.
struct Adam {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

/// Adagrad; the sum of squares is its moment2, which starts at zero.
/// Requires: lr, lr_decay and weight_decay finite and >= 0; eps finite and > 0.
/// Source: Duchi, Hazan, Singer 2011; torch/optim/adagrad.py.
struct Adagrad {
  double lr = 1e-2;
  double lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;
};

/// Lion: steps by the sign of the interpolated moment, which is its moment1; decoupled weight decay.
/// Requires: lr and weight_decay finite and >= 0; betas in [0, 1).
/// Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2.
struct Lion {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
};

/// Stochastic gradient descent with momentum; the momentum buffer is its moment1, kept with momentum 0 too.
/// Requires: lr and weight_decay finite and >= 0; momentum and dampening in [0, 1]; Nesterov with a momentum > 0
/// and no dampening alone. Without momentum dampening has no effect.
/// Source: Sutskever et al. 2013; torch/optim/sgd.py.
struct Sgd {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// The update rule of a group and its numbers. Stores name a rule by its index here: new ones are appended.
using Optimizer = std::variant<AdamW, Adam, Adagrad, Lion, Sgd>;

/// Which running means a rule keeps for each element.
enum class Moments : std::uint8_t { kFirst, kSecond, kBoth };
constexpr bool has_first(Moments moments) { return moments != Moments::kSecond; }
constexpr bool has_second(Moments moments) { return moments != Moments::kFirst; }

/// One number of a rule, for whoever reads or writes rules by name: stores, commands, messages.
struct OptimizerNumber {
  std::string_view name;      ///< of the member: "lr"
  std::string_view accepted;  ///< the range, in words: "finite, >= 0"
  bool (*accepts)(double value);
  double (*get)(const Optimizer& optimizer);  ///< Requires: a rule of this kind.
  void (*set)(Optimizer& optimizer, double value);
};

/// A rule, described. A flag is a number 0 or 1.
struct OptimizerKind {
  std::string_view name;  ///< as commands and files spell it: "adamw", "adam", "adagrad", "lion", "sgd"
  Moments moments = Moments::kBoth;
  std::span<const OptimizerNumber>
      numbers;  ///< in the order in which stores keep them: new ones are appended
  Optimizer defaults;
};

/// By index in Optimizer.
SLUICE_API std::span<const OptimizerKind> optimizer_kinds();
SLUICE_API const OptimizerKind& kind_of(const Optimizer& optimizer);
/// Null for a name that no rule has.
SLUICE_API const OptimizerKind* find_optimizer_kind(std::string_view name);

/// Errors: kInvalidArgument with the field's name, its value and the accepted range.
SLUICE_API Status validate(const Optimizer& optimizer);

/// Whether a group of this policy can be stepped by this rule; its numbers are not looked at. A frozen group takes
/// any and uses none.
/// Errors: kInvalidArgument, naming both and the reason.
SLUICE_API Status validate(Policy policy, const Optimizer& optimizer);

}  // namespace sluice
