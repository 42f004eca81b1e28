#include "store/optimizer_numbers.hpp"

#include <fmt/format.h>

#include <bit>
#include <variant>

namespace sluice::store {

static_assert(std::variant_size_v<Optimizer> == 1, "AdamW alone: its alternative is 0");

OptimizerNumbers numbers_of(const Optimizer& optimizer) {
  const AdamW& rule = std::get<AdamW>(optimizer);
  return {rule.lr, rule.beta1, rule.beta2, rule.eps, rule.weight_decay};
}

Status check_alternative(std::uint32_t alternative) {
  if (alternative < std::variant_size_v<Optimizer>) return {};
  return Status(Code::kUnimplemented, fmt::format("optimizer {}, this build has those below {}", alternative,
                                                  std::variant_size_v<Optimizer>));
}

Result<Optimizer> optimizer_from(std::uint32_t alternative, const OptimizerNumbers& numbers) {
  SLUICE_RETURN_IF_ERROR(check_alternative(alternative));
  for (std::size_t at = 5; at < numbers.size(); ++at) {
    if (std::bit_cast<std::uint64_t>(numbers[at]) != 0) {
      return Status(Code::kDataLoss, fmt::format("number {} of an AdamW is {}, it has 5", at, numbers[at]));
    }
  }
  return Optimizer(AdamW{.lr = numbers[0],
                         .beta1 = numbers[1],
                         .beta2 = numbers[2],
                         .eps = numbers[3],
                         .weight_decay = numbers[4]});
}

}  // namespace sluice::store
