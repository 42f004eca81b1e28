#include "tools/optimizer_options.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/planes.hpp"
#include "trainer/optimizer_numbers.hpp"

namespace sluice::tools {
namespace {

std::string option_name(std::string_view number) {
  std::string option = "--" + std::string(number);
  std::ranges::replace(option, '_', '-');
  return option;
}

// The numbers of all rules, each name once, in order of rules.
std::vector<OptimizerNumber> all_numbers() {
  std::vector<OptimizerNumber> numbers;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const OptimizerNumber& number : kind.numbers) {
      if (std::ranges::find(numbers, number.name, &OptimizerNumber::name) == numbers.end())
        numbers.push_back(number);
    }
  }
  return numbers;
}

// Takes 0 and 1, and nothing between.
bool is_flag(const OptimizerNumber& number) { return !number.accepts(0.5); }

const Optimizer& defaults_of(const OptimizerKind& kind, const Optimizer& own) {
  return kind_of(own).name == kind.name ? own : kind.defaults;
}

// "finite, >= 0; adamw 0.01, adam 0 …": its range, and its default under each rule that has it.
std::string description(const OptimizerNumber& number, const Optimizer& own) {
  std::string text = is_flag(number) ? "Off by default:" : std::string(number.accepted) + "; by default";
  std::string_view separator = " ";
  for (const OptimizerKind& kind : optimizer_kinds()) {
    const OptimizerNumber* const of_kind = trainer::find_number(kind, number.name);
    if (of_kind == nullptr) continue;
    text += is_flag(number)
                ? fmt::format("{}{} alone", separator, kind.name)
                : fmt::format("{}{} {}", separator, kind.name, of_kind->get(defaults_of(kind, own)));
    separator = ", ";
  }
  return text;
}

}  // namespace

std::vector<std::string> stepped_policies() {
  std::vector<std::string> names;
  for (const Policy policy : policies())
    if (policy != Policy::kFrozen) names.emplace_back(policy_name(policy));
  return names;
}

void add_optimizer_options(CLI::App& command, OptimizerArguments& arguments, const Optimizer& own) {
  command.add_option("--policy", arguments.policy, "What is kept for each element")
      ->check(CLI::IsMember(stepped_policies()))
      ->capture_default_str();
  std::vector<std::string> rules;
  for (const OptimizerKind& kind : optimizer_kinds()) rules.emplace_back(kind.name);
  command.add_option("--optimizer", arguments.optimizer, "The update rule, with numbers of its own:")
      ->check(CLI::IsMember(rules))
      ->capture_default_str();
  for (const OptimizerNumber& number : all_numbers()) {
    const auto set = [&arguments, name = number.name](double value) { arguments.numbers[name] = value; };
    if (is_flag(number)) {
      command.add_flag_callback(
          option_name(number.name), [set] { set(1); }, description(number, own));
    } else {
      command.add_option_function<double>(option_name(number.name), set, description(number, own));
    }
  }
}

Result<StateRule> read_optimizer(const OptimizerArguments& arguments, const Optimizer& own) {
  const OptimizerKind& kind = *find_optimizer_kind(arguments.optimizer);
  StateRule rule{*find_policy(arguments.policy), defaults_of(kind, own)};
  for (const auto& [name, value] : arguments.numbers) {
    const OptimizerNumber* const number = trainer::find_number(kind, name);
    if (number == nullptr) {
      std::string has;
      for (const OptimizerNumber& each : kind.numbers)
        has += (has.empty() ? "" : ", ") + option_name(each.name);
      return {Code::kInvalidArgument,
              fmt::format("{} is no number of {}, which has {}", option_name(name), kind.name, has)};
    }
    number->set(rule.optimizer, value);
  }
  SLUICE_RETURN_IF_ERROR(validate(rule.optimizer));
  SLUICE_RETURN_IF_ERROR(validate(rule.policy, rule.optimizer));
  return rule;
}

std::uint64_t state_bytes(const StateRule& rule, std::uint64_t elements) {
  std::uint64_t bytes = 0;
  for (const kernels::PlaneFormat& plane : kernels::planes_of(rule.policy, rule.optimizer, DType::kBF16))
    bytes += plane.bytes(elements);
  return bytes;
}

std::string optimizer_text(const Optimizer& optimizer) {
  const OptimizerKind& kind = kind_of(optimizer);
  std::string text(kind.name);
  for (const OptimizerNumber& number : kind.numbers)
    text += fmt::format(" {} {}", number.name, number.get(optimizer));
  return text;
}

nlohmann::ordered_json optimizer_json(const Optimizer& optimizer) {
  const OptimizerKind& kind = kind_of(optimizer);
  nlohmann::ordered_json json = {{"name", kind.name}};
  for (const OptimizerNumber& number : kind.numbers) json[std::string(number.name)] = number.get(optimizer);
  return json;
}

}  // namespace sluice::tools
