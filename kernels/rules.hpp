#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/stripes.hpp"
#include "kernels/update.hpp"
#include "sluice/optimizer.hpp"

namespace sluice::kernels {

/// Elements that are whole stripes of XXH3 in every plane of two or four bytes an element.
inline constexpr std::size_t kStripeElements = 32;
/// Elements that are a whole block of stripes in a plane of four bytes an element, and half a one of two bytes.
inline constexpr std::size_t kBlockElements = 256;
/// How many stripes `elements` are. Requires: they are whole ones.
constexpr std::size_t stripes_of(std::size_t elements, std::size_t element_bytes) {
  return elements * element_bytes / StripeSums::kStripeBytes;
}
static_assert(stripes_of(kStripeElements, 2) == 1);
static_assert(stripes_of(kBlockElements, 4) == StripeSums::kBlockStripes);

/// Bytes of an element in a plane.
struct ElementBytes {
  Plane plane;
  std::size_t bytes;
};

/// The sums of each plane's stripes, by Plane, that a loop adds to as it finds and leaves them; null for none.
struct StripeHashing {
  std::array<StripeSums, kPlaneKinds>* read = nullptr;
  std::array<StripeSums, kPlaneKinds>* written = nullptr;
  bool any() const { return read != nullptr || written != nullptr; }
};

/// An update rule for all policies; each is a file of its name (adamw.cpp …), listed in update.cpp.
struct UpdateRule {
  /// Sets factors.numbers for the step `step_count` of the optimizer, which is this rule's.
  void (*set_numbers)(Factors& factors, const Optimizer& optimizer, double step_count);
  /// As kernels::update, in a default floating-point environment; of hashes only what `stripes` says.
  /// Requires: with stripes Isa::kAvx512, whole kStripeElements after whole kBlockElements, not Policy::kMoments8.
  std::uint64_t (*update)(const Run& run, const Factors& factors, const Dither& dither,
                          const StripeHashing& stripes);
};

extern const UpdateRule kAdamWRule;
extern const UpdateRule kAdamRule;
extern const UpdateRule kAdagradRule;
extern const UpdateRule kLionRule;
extern const UpdateRule kSgdRule;

}  // namespace sluice::kernels
