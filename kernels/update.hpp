#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/planes.hpp"
#include "kernels/tile_hash.hpp"
#include "sluice/optimizer.hpp"
#include "sluice/types.hpp"

namespace sluice::kernels {

/// The numbers of one step of one parameter for the kernel of its rule, each computed in double and rounded to
/// float once. Which number is which is the rule's own affair (kernels/<rule>.cpp).
struct Factors {
  static constexpr std::size_t kMost = 8;
  std::uint32_t rule = 0;  ///< index in Optimizer
  float gradient = 1;      ///< clipping and unscaling in one
  std::array<float, kMost> numbers{};
  /// Equal factors make equal updates.
  friend bool operator==(const Factors&, const Factors&) = default;
};

/// The factors of the step that makes the count `step_count`, for gradients that are multiplied by
/// `gradient_factor` (clipping and unscaling in one).
/// Requires: step_count >= 1, validate(optimizer).
Factors make_factors(const Optimizer& optimizer, std::uint64_t step_count, double gradient_factor);

/// Keys the random bits of stochastic rounding: element i of the run takes those of (key, first_element + i), one
/// plane other ones than another. Which bits: kernels/dither-inl.hpp.
struct Dither {
  std::uint64_t key = 0;
  std::uint64_t first_element = 0;  ///< of the whole parameter
};

/// The key of one parameter's step: XXH3-64 over seed, XXH3-64 of the name and step count, 8 bytes each.
std::uint64_t dither_key(std::uint64_t seed, std::string_view parameter, std::uint64_t step_count);

/// Element type of the gradient plane that an update reads.
enum class GradientPlane : std::uint8_t { kF32, kBF16 };

/// A run of one parameter's elements: `elements` from the first that the pointers point at.
/// Requires: not a frozen one; planes_of(policy, optimizer)'s planes are there, aligned to their values, none
/// overlapping; the first element starts a granule where the policy has scales.
struct Run {
  Policy policy = Policy::kBf16Split;
  PlanePointers planes{};
  const std::byte* gradient = nullptr;
  GradientPlane gradient_plane = GradientPlane::kF32;
  std::size_t elements = 0;
};

/// XXH3-64 of each plane of a tile, by Plane, fed by the updates that pass over the tile's elements in order.
using PlaneHashers = std::array<Hasher, kPlaneKinds>;

/// Where an update puts the planes' bytes as it found them and as it left them, null for nowhere: hashed piece by
/// piece in the first-level cache while later bytes come in, which costs less than a pass over the tile before or
/// after.
struct Hashing {
  PlaneHashers* read = nullptr;
  PlaneHashers* written = nullptr;
};

/// Elements [first, first + count) of planes.
struct Elements {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Feeds the bytes of elements to the hashers, for what no update passes over; of a scale plane those of the granules
/// that start among them. So are the elements of a parameter, its last granule maybe part, and then the gap to the
/// next granule fed each value once.
void hash_planes(PlaneHashers& hashers, std::span<const PlaneFormat> formats, const PlanePointers& planes,
                 const Elements& elements);

/// Updates a run in place by the factors' rule, in one pass over memory: gradient up-conversion, factor, update,
/// rounding of the weight, hashes. The rule works on fp32 values of all planes:
///   g = gradient * factor; p, m, v as in the rule's file; m and v below FLT_MIN are stored as +0; a NaN is
/// stored as 0x7FC00000 (a 16-bit weight as 0x7FC0 or 0x7E00, residual 0). With lr = 0 weights are left as they are.
/// Moments are rounded as the policy says: not at all, stochastically to bf16 (finite ones; Dither), to nearest in
/// 8 bits.
///
/// The new bits of element i depend on element i, its granule (8-bit moments), the factors and the dither alone: not
/// on its position in the run, the length, or the caller's floating-point control register. All targets with a fused
/// multiply-add give the same bits; one without rounds the product too.
/// Returns: how many elements have a finite master whose weight is Inf, after the update. Threads: any, one an
/// element.
std::uint64_t update(const Run& run, const Factors& factors, const Dither& dither = {},
                     const Hashing& hashing = {});

}  // namespace sluice::kernels
