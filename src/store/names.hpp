#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::store {

// Names of what a store keeps under a directory: store-<id>/rank-<rank>/{lock, owner, data}.

inline constexpr std::string_view kStorePrefix = "store-";
inline constexpr std::string_view kRankPrefix = "rank-";
inline constexpr const char* kLockName = "lock";
inline constexpr const char* kOwnerName = "owner";
inline constexpr const char* kOwnerDraftName = "owner.draft";  ///< becomes kOwnerName by a rename
inline constexpr const char* kDataName = "data";
inline constexpr const char* kGradientsName = "gradients";  ///< unlinked as soon as it is open

/// "store-" and 16 hexadecimal digits.
std::string store_name(std::uint64_t store_id);
/// "rank-" and at least 5 decimal digits.
std::string rank_name(std::uint32_t rank);

/// The store whose store_name() this is; nothing for another name.
std::optional<std::uint64_t> parse_store_name(std::string_view name);
/// The rank whose rank_name() this is; nothing for another name.
std::optional<std::uint32_t> parse_rank_name(std::string_view name);
/// Whether a store puts a file of this name into a rank's directory.
bool is_own_file(std::string_view name);

}  // namespace sluice::store
