#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/exact_sum.hpp"

namespace sluice::kernels {

/// What contributions have changed in the sum of squares over a gradient.
struct NormDelta {
  ExactSum squares;                      ///< new granule sums minus the old ones, finite ones only
  std::uint64_t nonfinite_granules = 0;  ///< granules that a contribution left with an Inf or NaN

  void merge(const NormDelta& other) {
    squares.merge(other.squares);
    nonfinite_granules += other.nonfinite_granules;
  }
};

/// Element type of a contribution as the trainer gives it.
enum class GradientDType { kF32, kBF16, kF16 };

/// Whether a contribution begins a gradient plane (what it held does not matter) or adds to it.
enum class Accumulate { kStore, kAdd };

/// Brings a contribution into an fp32 gradient plane: target = float(source), or target + float(source).
///
/// With a norm, each granule's old sum of squares (kAdd: recomputed from target) is taken out of it and the
/// new one put in; a granule sum is a double over 16 lanes (lane = index mod 16) and a fixed tree, equal on
/// every target, a last partial granule as if padded with zeros. A sum that is not finite is never added nor
/// taken out: the granule that a contribution leaves so is counted. Requires: element 0 is the first of a
/// granule; target and source aligned to their elements, not overlapping. norm may be null. Threads: any, one
/// a target and a norm.
void accumulate_f32(float* target, const void* source, GradientDType source_type, std::size_t elements,
                    Accumulate accumulate, NormDelta* norm);

/// Stores a contribution into a bf16 gradient plane, rounded once to nearest even (bf16: as it is).
///
/// With a norm, adds the granule sums of the rounded values, as above; a finite value that rounds to Inf
/// counts as not finite. Requires: as accumulate_f32.
void store_bf16(std::uint16_t* target, const void* source, GradientDType source_type, std::size_t elements,
                NormDelta* norm);

}  // namespace sluice::kernels
