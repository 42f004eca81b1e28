#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

/// XXH3's sums between two stripes of 64 bytes.
struct StripeSums {
  static constexpr std::size_t kStripeBytes = 64;
  static constexpr std::size_t kStripeWords = 8;
  static constexpr std::size_t kBlockStripes = 16;     ///< after which the sums are scrambled
  static constexpr std::size_t kScrambleOffset = 128;  ///< into the secret
  alignas(64) std::uint64_t sums[kStripeWords];
  const std::uint8_t* secret = nullptr;  ///< 192 bytes
  std::size_t in_block = 0;              ///< stripes since the last scrambling
};

/// Adds `count` stripes that follow those added so far, and scrambles the sums where a block ends. The last stripe of all
/// bytes is not for here: a digest adds it with another part of the secret.
/// Threads: any, one a StripeSums.
void add_stripes(StripeSums& sums, const void* stripes, std::size_t count);

}  // namespace sluice::kernels
