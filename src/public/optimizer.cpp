#include "sluice/optimizer.hpp"

#include <cmath>
#include <string>

namespace sluice {
namespace {

Status refuse(std::string_view field, double value, std::string_view accepted) {
  return Status(Code::kInvalidArgument,
                "AdamW " + std::string(field) + " = " + std::to_string(value) + ", accepted: " + std::string(accepted));
}

Status validate_rule(const AdamW& rule) {
  if (!(std::isfinite(rule.lr) && rule.lr >= 0)) return refuse("lr", rule.lr, "finite, >= 0");
  if (!(rule.beta1 >= 0 && rule.beta1 < 1)) return refuse("beta1", rule.beta1, "[0, 1)");
  if (!(rule.beta2 >= 0 && rule.beta2 < 1)) return refuse("beta2", rule.beta2, "[0, 1)");
  if (!(std::isfinite(rule.eps) && rule.eps > 0)) return refuse("eps", rule.eps, "finite, > 0");
  if (!(std::isfinite(rule.weight_decay) && rule.weight_decay >= 0))
    return refuse("weight_decay", rule.weight_decay, "finite, >= 0");
  return {};
}

}  // namespace

Status validate(const Optimizer& optimizer) {
  return std::visit([](const auto& rule) { return validate_rule(rule); }, optimizer);
}

}  // namespace sluice
