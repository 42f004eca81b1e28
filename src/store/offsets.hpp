#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace sluice::store {

/// The greatest size of a file, and so the end of every offset in one.
inline constexpr std::uint64_t kFileBytesMax = std::numeric_limits<std::int64_t>::max();

constexpr std::uint64_t align_down(std::uint64_t value, std::uint64_t grid) { return value - value % grid; }

/// Requires: value + grid - 1 fits 64 bits.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t grid) {
  return align_down(value + grid - 1, grid);
}

/// Nothing where that passes 64 bits.
constexpr std::optional<std::uint64_t> checked_align_up(std::uint64_t value, std::uint64_t grid) {
  if (value > std::numeric_limits<std::uint64_t>::max() - (grid - 1)) return std::nullopt;
  return align_up(value, grid);
}

}  // namespace sluice::store
