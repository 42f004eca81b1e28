#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "store/store.hpp"

namespace sluice::store {
namespace {

constexpr std::size_t kNamedMax = 4;  // parameters

std::string describe(const StoredParameter& parameter) {
  return fmt::format("\"{}\" [{}] {} of group {} ({}, {}, gradients {}, rank {} of {})", parameter.name,
                     fmt::join(parameter.shape, ", "), policy_name(parameter.policy), parameter.group,
                     optimizer_kinds()[parameter.optimizer].name, dtype_name(parameter.frozen_dtype),
                     parameter.gradient == GradientStorage::kFp32 ? "fp32" : "bf16, once", parameter.rank,
                     parameter.world);
}

std::string describe(const StoredAlias& alias) {
  return fmt::format("\"{}\" tied to parameter {}", alias.name, alias.parameter);
}

template <class T>
void compare(const char* what, std::span<const T> stored, std::span<const T> registered,
             std::vector<std::string>& found) {
  if (stored.size() != registered.size()) {
    found.push_back(
        fmt::format("{}: {} in the store, {} registered", what, stored.size(), registered.size()));
  }
  std::size_t differ = 0;
  for (std::size_t i = 0; i < std::min(stored.size(), registered.size()); ++i) {
    if (stored[i] == registered[i] || ++differ > kNamedMax) continue;
    found.push_back(fmt::format("{}: {} in the store, {} registered in its place", what, describe(stored[i]),
                                describe(registered[i])));
  }
  if (differ > kNamedMax) found.push_back(fmt::format("{}: and {} more", what, differ - kNamedMax));
}

}  // namespace

std::vector<std::string> Store::differences(const ExistingRank& existing, const StoreOptions& options,
                                            std::uint32_t drives) {
  if (!existing.superblock) return {"the store: its making was cut short"};
  std::vector<std::string> found;
  const Superblock& superblock = *existing.superblock;
  const auto differ = [&](const char* what, auto stored, auto given) {
    if (stored != given) found.push_back(fmt::format("{}: {} in the store, {} here", what, stored, given));
  };
  const auto word = [](Undo undo) { return undo == Undo::kOn ? "on" : "off"; };
  differ("world", superblock.world, options.world);
  differ("drives", superblock.drives, drives);
  differ("chunk_elements", superblock.chunk_elements, options.chunk_elements);
  differ("grid_bytes", superblock.grid_bytes, options.grid_bytes);
  differ("keep_commits", superblock.keep_commits, options.keep_commits);
  if (superblock.undo != options.undo) {
    found.push_back(fmt::format("undo: {} in the store, {} here", word(superblock.undo), word(options.undo)));
  }
  if (superblock.place_bytes < options.record_bytes_max) {
    found.push_back(fmt::format("room for a commit record: {} bytes in the store, {} here",
                                superblock.place_bytes, options.record_bytes_max));
  }
  compare("parameters", std::span<const StoredParameter>(existing.catalog.parameters), options.parameters,
          found);
  compare("names of tied parameters", std::span<const StoredAlias>(existing.catalog.aliases), options.aliases,
          found);
  return found;
}

}  // namespace sluice::store
