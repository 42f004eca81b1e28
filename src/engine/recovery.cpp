#include "engine/recovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace sluice::engine {
namespace {

const store::GroupSettings* find_group(const std::vector<store::GroupSettings>& groups,
                                       const std::string& name) {
  const auto found = std::ranges::find(groups, name, &store::GroupSettings::name);
  return found == groups.end() ? nullptr : &*found;
}

/// Two optimizers of different kinds, or the numbers in which they differ, each with both values.
void compare_optimizers(const Optimizer& now, const Optimizer& stored, const std::string& group,
                        std::vector<std::string>& differences) {
  const OptimizerKind& kind = kind_of(now);
  if (now.index() != stored.index()) {
    differences.push_back(
        fmt::format("group '{}': optimizer {}, committed with {}", group, kind.name, kind_of(stored).name));
    return;
  }
  for (const OptimizerNumber& number : kind.numbers)
    if (number.get(now) != number.get(stored))
      differences.push_back(fmt::format("group '{}': {} = {}, committed with {}", group, number.name,
                                        number.get(now), number.get(stored)));
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
      compare_optimizers(group.options.optimizer, stored->optimizer, name, differences);
  }
}

}  // namespace sluice::engine
