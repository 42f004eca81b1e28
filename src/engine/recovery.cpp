#include "engine/recovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace sluice::engine {
namespace {

const store::GroupSettings* find_group(const std::vector<store::GroupSettings>& groups,
                                       const std::string& name) {
  const auto found = std::ranges::find(groups, name, &store::GroupSettings::name);
  return found == groups.end() ? nullptr : &*found;
}

/// The numbers of two optimizers of one kind that differ, each with both values.
void compare_numbers(const AdamW& now, const AdamW& stored, const std::string& group,
                     std::vector<std::string>& differences) {
  struct Number {
    const char* name;
    double AdamW::*value;
  };
  constexpr std::array<Number, 5> kNumbers{{{"lr", &AdamW::lr},
                                            {"beta1", &AdamW::beta1},
                                            {"beta2", &AdamW::beta2},
                                            {"eps", &AdamW::eps},
                                            {"weight_decay", &AdamW::weight_decay}}};
  for (const Number& number : kNumbers)
    if (now.*number.value != stored.*number.value)
      differences.push_back(fmt::format("group '{}': {} = {}, committed with {}", group, number.name,
                                        now.*number.value, stored.*number.value));
}

}  // namespace

Status Recovery::guard() {
  guards.clear();
  SLUICE_ASSIGN_OR_RETURN(guards, drives->guard());
  return {};
}

void compare_settings(const Registry& registry, std::uint64_t seed,
                      const std::vector<store::GroupSettings>& committed, std::uint64_t committed_seed,
                      std::vector<std::string>& differences) {
  if (seed != committed_seed)
    differences.push_back(fmt::format("seed = {}, committed with {}, which is in use", seed, committed_seed));
  for (const Group& group : registry.groups()) {
    if (group.options.policy == Policy::kFrozen) continue;
    const std::string& name = group.options.name;
    const store::GroupSettings* stored = find_group(committed, name);
    if (stored == nullptr)
      differences.push_back(fmt::format("group '{}' was not committed", name));
    else
      compare_numbers(std::get<AdamW>(group.options.optimizer), std::get<AdamW>(stored->optimizer), name,
                      differences);
  }
}

}  // namespace sluice::engine
