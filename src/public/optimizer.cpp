#include "sluice/optimizer.hpp"

#include <array>
#include <cmath>
#include <string>

namespace sluice {
namespace {

bool not_negative(double value) { return std::isfinite(value) && value >= 0; }
bool positive(double value) { return std::isfinite(value) && value > 0; }
bool beta(double value) { return value >= 0 && value < 1; }
bool part(double value) { return value >= 0 && value <= 1; }
bool flag(double value) { return value == 0 || value == 1; }

struct Range {
  std::string_view accepted;
  bool (*accepts)(double value);
};
constexpr Range kNotNegative{"finite, >= 0", not_negative};
constexpr Range kPositive{"finite, > 0", positive};
constexpr Range kBeta{"[0, 1)", beta};
constexpr Range kPart{"[0, 1]", part};
constexpr Range kFlag{"0 or 1", flag};

template <class Member>
struct MemberOf;
template <class Rule, class Value>
struct MemberOf<Value Rule::*> {
  using Of = Rule;
  using Type = Value;
};

template <auto kMember>
constexpr OptimizerNumber number(std::string_view name, Range range) {
  using Rule = typename MemberOf<decltype(kMember)>::Of;
  using Value = typename MemberOf<decltype(kMember)>::Type;
  return {
      .name = name,
      .accepted = range.accepted,
      .accepts = range.accepts,
      .get = [](const Optimizer& of) { return static_cast<double>(std::get<Rule>(of).*kMember); },
      .set = [](Optimizer& of, double value) { std::get<Rule>(of).*kMember = static_cast<Value>(value); }};
}

constexpr std::array kAdamW{number<&AdamW::lr>("lr", kNotNegative), number<&AdamW::beta1>("beta1", kBeta),
                            number<&AdamW::beta2>("beta2", kBeta), number<&AdamW::eps>("eps", kPositive),
                            number<&AdamW::weight_decay>("weight_decay", kNotNegative)};
constexpr std::array kAdam{number<&Adam::lr>("lr", kNotNegative), number<&Adam::beta1>("beta1", kBeta),
                           number<&Adam::beta2>("beta2", kBeta), number<&Adam::eps>("eps", kPositive),
                           number<&Adam::weight_decay>("weight_decay", kNotNegative)};
constexpr std::array kAdagrad{
    number<&Adagrad::lr>("lr", kNotNegative), number<&Adagrad::lr_decay>("lr_decay", kNotNegative),
    number<&Adagrad::eps>("eps", kPositive), number<&Adagrad::weight_decay>("weight_decay", kNotNegative)};
constexpr std::array kLion{number<&Lion::lr>("lr", kNotNegative), number<&Lion::beta1>("beta1", kBeta),
                           number<&Lion::beta2>("beta2", kBeta),
                           number<&Lion::weight_decay>("weight_decay", kNotNegative)};
constexpr std::array kSgd{number<&Sgd::lr>("lr", kNotNegative), number<&Sgd::momentum>("momentum", kPart),
                          number<&Sgd::dampening>("dampening", kPart),
                          number<&Sgd::weight_decay>("weight_decay", kNotNegative),
                          number<&Sgd::nesterov>("nesterov", kFlag)};

const std::array kKinds{
    OptimizerKind{.name = "adamw", .moments = Moments::kBoth, .numbers = kAdamW, .defaults = AdamW{}},
    OptimizerKind{.name = "adam", .moments = Moments::kBoth, .numbers = kAdam, .defaults = Adam{}},
    OptimizerKind{.name = "adagrad", .moments = Moments::kSecond, .numbers = kAdagrad, .defaults = Adagrad{}},
    OptimizerKind{.name = "lion", .moments = Moments::kFirst, .numbers = kLion, .defaults = Lion{}},
    OptimizerKind{.name = "sgd", .moments = Moments::kFirst, .numbers = kSgd, .defaults = Sgd{}}};
static_assert(kKinds.size() == std::variant_size_v<Optimizer>);

Status refuse(std::string_view rule, std::string_view field, double value, std::string_view accepted) {
  return Status(Code::kInvalidArgument, std::string(rule) + " " + std::string(field) + " = " +
                                            std::to_string(value) + ", accepted: " + std::string(accepted));
}

}  // namespace

std::span<const OptimizerKind> optimizer_kinds() { return kKinds; }

const OptimizerKind& kind_of(const Optimizer& optimizer) { return kKinds[optimizer.index()]; }

const OptimizerKind* find_optimizer_kind(std::string_view name) {
  for (const OptimizerKind& kind : kKinds)
    if (kind.name == name) return &kind;
  return nullptr;
}

Status validate(const Optimizer& optimizer) {
  const OptimizerKind& kind = kind_of(optimizer);
  for (const OptimizerNumber& number : kind.numbers)
    if (const double value = number.get(optimizer); !number.accepts(value))
      return refuse(kind.name, number.name, value, number.accepted);
  if (const Sgd* sgd = std::get_if<Sgd>(&optimizer); sgd != nullptr && sgd->nesterov) {
    if (!(sgd->momentum > 0)) return refuse(kind.name, "momentum", sgd->momentum, "> 0 with nesterov");
    if (sgd->dampening != 0) return refuse(kind.name, "dampening", sgd->dampening, "0 with nesterov");
  }
  return {};
}

Status validate(Policy policy, const Optimizer& optimizer) {
  // Half a step of the code is about 1 % of a value: a sum that no decay makes room in stands still early.
  if (policy == Policy::kMoments8 && std::holds_alternative<Adagrad>(optimizer))
    return Status(
        Code::kInvalidArgument,
        "policy moments8 with optimizer adagrad: its sum of squares only grows, in 8 bits it would soon "
        "stand still; policies for it: bf16_split, fp32, fp16_master, bf16_moments");
  return {};
}

}  // namespace sluice
