#pragma once

#include <cstdint>

#include "sluice/engine.hpp"
#include "trainer/registry.hpp"

namespace sluice::trainer {

/// What two runs are compared by: equal numbers mean equal bits.
/// XXH3-64 over all parameters in order of name: the name's bytes, then the planes' values, little-endian.
struct Fingerprint {
  std::uint64_t weights_xxh3 = 0;  ///< of the weight planes
  /// Of all planes that the policy and the rule keep, in this order: weight, residual, master, moment1, moment2 (as they
  /// are kept: F32, BF16 or 8-bit codes), scale1, scale2; then the step count as u64.
  std::uint64_t state_xxh3 = 0;
};

/// Reads the whole state in bounded pieces. Requires: no pass is open.
Result<Fingerprint> fingerprint(const Engine& engine, const Registry& registry);

}  // namespace sluice::trainer
