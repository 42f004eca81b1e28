#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/constants.hpp"
#include "sluice/optimizer.hpp"
#include "sluice/types.hpp"

namespace sluice::kernels {

/// The kinds of typed arrays that a policy keeps.
enum class Plane : std::uint8_t {
  kWeight,    ///< what forward and backward compute with
  kResidual,  ///< what a bf16 weight lacks to the fp32 master, int16: master bits = (weight << 16) + residual
  kMaster,    ///< fp32, beside an fp16 weight
  kMoment1,
  kMoment2,
  kScale1,  ///< of moment1, fp32, one a granule
  kScale2,
};
inline constexpr std::size_t kPlaneKinds = 7;

/// "weight", "residual", "master", "moment1", "moment2", "scale1", "scale2".
std::string_view plane_name(Plane plane);

struct PlaneFormat {
  Plane plane = Plane::kWeight;
  DType dtype = DType::kF32;             ///< 8-bit moments are kU8: codes of kernels/moments8.hpp
  std::uint32_t elements_per_value = 1;  ///< 1, or kGranuleElements
  friend bool operator==(const PlaneFormat&, const PlaneFormat&) = default;

  /// Values for so many elements, the last granule's counted whole.
  std::uint64_t values(std::uint64_t elements) const {
    return elements_per_value == 1 ? elements : (elements + elements_per_value - 1) / elements_per_value;
  }
  /// Bytes of them, unpadded. Requires: elements below 2^60.
  std::uint64_t bytes(std::uint64_t elements) const { return values(elements) * dtype_bytes(dtype); }
};

/// How a policy keeps a plane that it has. Requires: not kFrozen, whose weights may be of any dtype.
PlaneFormat plane_format(Policy policy, Plane plane);

/// The planes that a policy keeps, the weight first, in the order in which they lie in a record; moments (and
/// their scales) that the optimizer does not use are left out.
std::vector<PlaneFormat> planes_of(Policy policy, const Optimizer& optimizer, DType frozen_dtype);

/// Where planes start, by Plane; null for those that there are not.
using PlanePointers = std::array<std::byte*, kPlaneKinds>;

inline std::byte*& at(PlanePointers& planes, Plane plane) { return planes[static_cast<std::size_t>(plane)]; }
inline std::byte* at(const PlanePointers& planes, Plane plane) {
  return planes[static_cast<std::size_t>(plane)];
}

/// The same planes from `element` on. Requires: a multiple of kGranuleElements where there are scales.
PlanePointers planes_from(const PlanePointers& planes, std::span<const PlaneFormat> formats,
                          std::size_t element);

}  // namespace sluice::kernels
