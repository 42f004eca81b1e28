#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tile_hash.hpp"

#include "sluice/optimizer.hpp"

namespace sluice::kernels {

/// A group's hyper-parameters, as the trainer gives them.
using AdamWSettings = AdamW;

/// The numbers of one step of one parameter, each computed in double and rounded to float once.
struct AdamWFactors {
  float gradient;         ///< coef / (loss_scale * divisor): clipping and unscaling in one
  float beta1;            ///< b1
  float one_minus_beta1;  ///< 1 - b1
  float beta2;            ///< b2
  float one_minus_beta2;  ///< 1 - b2
  float root_scale;       ///< 1 / sqrt(1 - b2^t)
  float eps;              ///< at least FLT_MIN, so that 0 / eps is 0
  float decay;            ///< 1 - lr * weight_decay
  float step;             ///< lr / (1 - b1^t)
  friend bool operator==(const AdamWFactors&, const AdamWFactors&) = default;
};

/// The factors of the step that makes the count `step_count`, for gradients multiplied by `gradient_factor`.
/// Requires: step_count >= 1, betas in [0, 1), eps > 0.
AdamWFactors adamw_factors(const AdamWSettings& settings, std::uint64_t step_count, double gradient_factor);

/// Planes of `bf16_split`: master bits = (weight << 16) + residual, two's complement.
struct Bf16SplitPlanes {
  std::uint16_t* weight;
  std::int16_t* residual;
  float* moment1;
  float* moment2;
};

struct Fp32Planes {
  float* weight;
  float* moment1;
  float* moment2;
};

/// The same planes from `element` on.
inline Bf16SplitPlanes planes_from(const Bf16SplitPlanes& planes, std::size_t element) {
  return {planes.weight + element, planes.residual + element, planes.moment1 + element,
          planes.moment2 + element};
}
inline Fp32Planes planes_from(const Fp32Planes& planes, std::size_t element) {
  return {planes.weight + element, planes.moment1 + element, planes.moment2 + element};
}

/// Element type of the gradient plane that an update reads.
enum class GradientPlane { kF32, kBF16 };

/// XXH3-64 of each plane of a tile, fed by the updates that pass over the tile's elements in order.
struct Bf16SplitHashers {
  Hasher weight, residual, moment1, moment2;
};
struct Fp32Hashers {
  Hasher weight, moment1, moment2;
};

/// Where an update puts the planes' bytes as it found them and as it left them, null for nowhere: hashed
/// piece by piece in the first-level cache while later bytes come in, which costs less than a pass over the
/// tile before or after.
struct Bf16SplitHashing {
  Bf16SplitHashers* read = nullptr;
  Bf16SplitHashers* written = nullptr;
};
struct Fp32Hashing {
  Fp32Hashers* read = nullptr;
  Fp32Hashers* written = nullptr;
};

/// Updates `elements` elements in place:
///   g     = gradient * factors.gradient
///   m     = flush(fma(g, 1 - b1, b1 * m))
///   v     = flush(fma(g * g, 1 - b2, b2 * v))
///   p     = fma(-step, m / fma(sqrt(v), root_scale, eps), p * decay)
/// each operation rounded to nearest float, flush(x) = +0 if |x| < FLT_MIN. NaNs are stored as 0x7FC00000
/// (a split weight as 0x7FC0, residual 0). With step = 0 and decay = 1 (lr = 0) weights are left as they are.
///
/// The new bits of element i depend on element i and the factors alone: not on its position, the length, or
/// the caller's floating-point control register. All targets with a fused multiply-add give the same bits;
/// one without rounds the product too, at most one ulp of a product more in m, v and p. Requires: planes
/// aligned to their elements, none overlapping. Returns: how many elements have a finite master whose weight
/// is Inf, after the update. Threads: any, one an element.
std::uint64_t adamw_bf16_split(const Bf16SplitPlanes& planes, const void* gradient,
                               GradientPlane gradient_plane, std::size_t elements,
                               const AdamWFactors& factors, const Bf16SplitHashing& hashing = {});
void adamw_fp32(const Fp32Planes& planes, const void* gradient, GradientPlane gradient_plane,
                std::size_t elements, const AdamWFactors& factors, const Fp32Hashing& hashing = {});

}  // namespace sluice::kernels
