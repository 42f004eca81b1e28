#include "store/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace sluice::store {

std::string store_name(std::uint64_t store_id) { return fmt::format("{}{:016x}", kStorePrefix, store_id); }

std::string rank_name(std::uint32_t rank) { return fmt::format("{}{:05}", kRankPrefix, rank); }

bool is_store_name(std::string_view name) {
  if (name.substr(0, kStorePrefix.size()) != kStorePrefix) return false;
  const std::string_view id = name.substr(kStorePrefix.size());
  return id.size() == 16 && id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
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
