#include "store/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace sluice::store {

std::string store_name(std::uint64_t store_id) { return fmt::format("{}{:016x}", kStorePrefix, store_id); }

std::string rank_name(std::uint32_t rank) { return fmt::format("{}{:05}", kRankPrefix, rank); }

std::optional<std::uint64_t> parse_store_name(std::string_view name) {
  if (name.substr(0, kStorePrefix.size()) != kStorePrefix) return std::nullopt;
  std::uint64_t store_id = 0;
  std::from_chars(name.data() + kStorePrefix.size(), name.data() + name.size(), store_id, 16);
  if (store_name(store_id) != name) return std::nullopt;
  return store_id;
}

std::optional<std::uint32_t> parse_rank_name(std::string_view name) {
  if (name.substr(0, kRankPrefix.size()) != kRankPrefix) return std::nullopt;
  std::uint32_t rank = 0;
  std::from_chars(name.data() + kRankPrefix.size(), name.data() + name.size(), rank);
  if (rank_name(rank) != name) return std::nullopt;
  return rank;
}

bool is_own_file(std::string_view name) {
  constexpr std::string_view kOwn[] = {kLockName, kOwnerName, kOwnerDraftName, kDataName, kGradientsName};
  return std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn);
}

}  // namespace sluice::store
