#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tile_hash.hpp"

namespace sluice::kernels {

/// XXH3-64 as one target's vectors compute it. `state` is memory of an XXH3_state_t, laid out alike in all of
/// them.
struct HashTarget {
  std::uint64_t (*hash)(const void* data, std::size_t bytes);
  void (*reset)(void* state);
  void (*update)(void* state, const void* data, std::size_t bytes);
  bool (*at_stripe)(const void* state, std::size_t stripes);
  void (*lend)(void* state, StripeSums& sums);
  void (*take_back)(void* state, const StripeSums& sums, std::size_t bytes);
  std::uint64_t (*digest)(const void* state);
};

extern const HashTarget kHashBaseline;
#if defined(__x86_64__)
extern const HashTarget kHashAvx2;
extern const HashTarget kHashAvx512;
#endif

}  // namespace sluice::kernels
