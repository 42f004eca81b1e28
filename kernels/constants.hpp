#pragma once

#include <cstddef>

namespace sluice::kernels {

/// Consecutive elements of one parameter whose squares are summed as one term of the norm.
inline constexpr std::size_t kGranuleElements = 256;

/// Consecutive elements of one plane that are hashed as one leaf of its checksum.
inline constexpr std::size_t kTileElements = 16384;

static_assert(kTileElements % kGranuleElements == 0);

}  // namespace sluice::kernels
