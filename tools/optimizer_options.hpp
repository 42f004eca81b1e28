#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "sluice/optimizer.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice::tools {

/// What --policy, --optimizer and the options named after the numbers of rules were given: "--weight-decay" sets
/// OptimizerNumber "weight_decay".
struct OptimizerArguments {
  std::string policy = "bf16_split";
  std::string optimizer = "adamw";
  std::map<std::string_view, double> numbers = {};  ///< those given, by OptimizerNumber::name
};

/// Names of all policies whose groups are stepped.
std::vector<std::string> stepped_policies();

/// `own` has the command's own defaults of its rule; the other rules have theirs.
/// Lifetime: `arguments` outlives parsing.
void add_optimizer_options(CLI::App& command, OptimizerArguments& arguments, const Optimizer& own);

/// What a group is kept and stepped by.
struct StateRule {
  Policy policy = Policy::kBf16Split;
  Optimizer optimizer;
};

/// Requires: words that add_optimizer_options() accepts.
/// Errors: kInvalidArgument for a number that the rule has not or does not accept, and for a policy that does not suit
/// it, by name.
Result<StateRule> read_optimizer(const OptimizerArguments& arguments, const Optimizer& own);

/// Of a parameter's planes but the gradient, unpadded. Requires: a stepped policy.
std::uint64_t state_bytes(const StateRule& rule, std::uint64_t elements);

/// "adamw lr 0.003 beta1 0.9 …", and the same as an object with the rule as its "name".
std::string optimizer_text(const Optimizer& optimizer);
nlohmann::ordered_json optimizer_json(const Optimizer& optimizer);

}  // namespace sluice::tools
