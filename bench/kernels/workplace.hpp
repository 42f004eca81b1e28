#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "arena.hpp"

namespace sluice::bench {

/// Where a benchmark works: one tile a thread, again and again, or a working set beyond any last-level cache.
enum class Place { kInCache, kOutOfCache };

/// Elements in the unit that planes lie side by side in, as in a record.
inline constexpr std::size_t kChunkElements = std::size_t{1} << 20;
inline constexpr std::size_t kElementBytesMax = 16;

/// 1.5 GiB of planes, made at first use. Host caches of half a GiB are seen in the wild.
inline const Arena& big_arena() {
  static const Arena arena(std::size_t{96} * kChunkElements * kElementBytesMax);
  return arena;
}

inline std::string place_name(Place place) { return place == Place::kInCache ? "in_cache" : "out_of_cache"; }

}  // namespace sluice::bench
