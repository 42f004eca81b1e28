#include "store/state_table.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "store/optimizer_numbers.hpp"

namespace sluice::store {
namespace {

using Index = std::unordered_map<std::string_view, std::uint32_t>;

Index index_of(const Catalog& catalog) {
  Index index;
  for (std::uint32_t at = 0; at < catalog.parameters.size(); ++at)
    index.emplace(catalog.parameters[at].name, at);
  return index;
}

std::uint32_t find(const Index& index, std::string_view name) {
  const auto found = index.find(name);
  return found == index.end() ? Holders::kNone : found->second;
}

/// Whether elements of one are elements of the other.
bool same_kind(const StoredParameter& a, const StoredParameter& b) {
  return a.shape == b.shape && a.policy == b.policy && a.optimizer == b.optimizer &&
         (a.policy != Policy::kFrozen || a.frozen_dtype == b.frozen_dtype);
}

/// The table's index of a rank's group: of rank 0's group at that index where the names agree, as with one
/// communicator they do.
std::uint32_t group_index(std::vector<GroupSettings>& groups, const GroupSettings& group,
                          std::uint32_t index) {
  if (index < groups.size() && groups[index].name == group.name) return index;
  const auto found = std::ranges::find(groups, group.name, &GroupSettings::name);
  if (found != groups.end()) return static_cast<std::uint32_t>(found - groups.begin());
  groups.push_back(group);
  return static_cast<std::uint32_t>(groups.size() - 1);
}

ReadableParameter describe(const RankImage& image, std::uint32_t index) {
  const StoredParameter& stored = image.catalog().parameters[index];
  ReadableParameter parameter{
      .name = stored.name,
      .shape = stored.shape,
      .elements = count_elements(stored.shape).value(),
      .policy = stored.policy,
      .optimizer = stored.optimizer,
      .frozen_dtype = stored.frozen_dtype,
      .gradient = stored.gradient,
      .group = stored.group,
      .planes = planes_of(stored.policy, optimizer_from(stored.optimizer, {}).value(), stored.frozen_dtype),
      .step_count = image.record().step_counts[index],
      .aliases = {}};
  for (const StoredAlias& alias : image.catalog().aliases)
    if (alias.parameter == index) parameter.aliases.push_back(alias.name);
  return parameter;
}

/// `described` is the parameter as the table has it.
Holders holders_of(const StoredParameter& described, std::span<const RankImage> images,
                   std::span<const Index> indices) {
  Holders holders;
  std::vector<std::uint32_t> rank_by_shard(std::min<std::size_t>(described.world, images.size()),
                                           Holders::kNone);
  std::uint32_t shards = 0;
  bool each_once = rank_by_shard.size() == described.world;
  for (std::uint32_t rank = 0; rank < images.size(); ++rank) {
    const std::uint32_t index = find(indices[rank], described.name);
    holders.index_by_rank.push_back(index);
    if (index == Holders::kNone) continue;
    const StoredParameter& stored = images[rank].catalog().parameters[index];
    if (!same_kind(stored, described)) {
      holders.index_by_rank.back() = Holders::kNone;
      each_once = false;
    } else if (!each_once || stored.world != described.world ||
               rank_by_shard[stored.rank] != Holders::kNone) {
      each_once = false;
    } else {
      rank_by_shard[stored.rank] = rank;
      ++shards;
    }
  }
  if (each_once && shards == described.world) holders.rank_by_shard = std::move(rank_by_shard);
  return holders;
}

}  // namespace

StateTable make_state_table(std::span<const RankImage> images, std::uint32_t near_rank) {
  std::vector<Index> indices;
  for (const RankImage& image : images) indices.push_back(index_of(image.catalog()));
  StateTable table;
  table.groups = images[0].record().groups;
  for (std::uint32_t rank = 0; rank < images.size(); ++rank) {
    for (std::uint32_t at = 0; at < images[rank].catalog().parameters.size(); ++at) {
      const std::string& name = images[rank].catalog().parameters[at].name;
      if (table.names.contains(name)) continue;
      const std::uint32_t near = near_rank < images.size() ? find(indices[near_rank], name) : Holders::kNone;
      const RankImage& image = near == Holders::kNone ? images[rank] : images[near_rank];
      const std::uint32_t index = near == Holders::kNone ? at : near;
      table.names.emplace(name, static_cast<std::uint32_t>(table.parameters.size()));
      table.parameters.push_back(describe(image, index));
      ReadableParameter& parameter = table.parameters.back();
      parameter.group = group_index(table.groups, image.record().groups[parameter.group], parameter.group);
      table.holders.push_back(holders_of(image.catalog().parameters[index], images, indices));
    }
  }
  for (std::uint32_t at = 0; at < table.parameters.size(); ++at)
    for (const std::string& alias : table.parameters[at].aliases) table.names.emplace(alias, at);
  return table;
}

}  // namespace sluice::store
