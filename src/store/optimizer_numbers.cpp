#include "store/optimizer_numbers.hpp"

#include <fmt/format.h>

#include <bit>
#include <variant>

namespace sluice::store {

OptimizerNumbers numbers_of(const Optimizer& optimizer) {
  OptimizerNumbers numbers{};
  std::size_t at = 0;
  for (const OptimizerNumber& number : kind_of(optimizer).numbers) numbers[at++] = number.get(optimizer);
  return numbers;
}

Status check_alternative(std::uint32_t alternative) {
  if (alternative < std::variant_size_v<Optimizer>) return {};
  return Status(Code::kUnimplemented, fmt::format("optimizer {}, this build has those below {}", alternative,
                                                  std::variant_size_v<Optimizer>));
}

Result<Optimizer> optimizer_from(std::uint32_t alternative, const OptimizerNumbers& numbers) {
  SLUICE_RETURN_IF_ERROR(check_alternative(alternative));
  const OptimizerKind& kind = optimizer_kinds()[alternative];
  Optimizer optimizer = kind.defaults;
  for (std::size_t at = 0; at < numbers.size(); ++at) {
    if (at < kind.numbers.size()) {
      kind.numbers[at].set(optimizer, numbers[at]);
      const double kept = kind.numbers[at].get(optimizer);
      if (std::bit_cast<std::uint64_t>(kept) != std::bit_cast<std::uint64_t>(numbers[at]))
        return Status(Code::kDataLoss,
                      fmt::format("{} of optimizer {} is {}, accepted: {}", kind.numbers[at].name, kind.name,
                                  numbers[at], kind.numbers[at].accepted));
    } else if (std::bit_cast<std::uint64_t>(numbers[at]) != 0) {
      return Status(Code::kDataLoss, fmt::format("number {} of optimizer {} is {}, it has {}", at, kind.name,
                                                 numbers[at], kind.numbers.size()));
    }
  }
  return optimizer;
}

}  // namespace sluice::store
