#include "store/element_values.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/convert.hpp"

namespace sluice::store {

bool converts(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

void to_f32(float* target, const void* source, DType dtype, std::size_t count) {
  if (dtype == DType::kF32)
    std::memcpy(target, source, count * sizeof(float));
  else if (dtype == DType::kBF16)
    kernels::bf16_to_f32(target, static_cast<const std::uint16_t*>(source), count);
  else
    kernels::f16_to_f32(target, static_cast<const std::uint16_t*>(source), count);
}

void from_f32(void* target, DType dtype, const float* source, std::size_t count) {
  if (dtype == DType::kF32)
    std::memcpy(target, source, count * sizeof(float));
  else if (dtype == DType::kBF16)
    kernels::f32_to_bf16(static_cast<std::uint16_t*>(target), source, count);
  else
    kernels::f32_to_f16(static_cast<std::uint16_t*>(target), source, count);
}

std::optional<std::size_t> find_plane(std::span<const PlaneFormat> planes, Plane wanted) {
  const auto found = std::ranges::find(planes, wanted, &PlaneFormat::plane);
  if (found == planes.end()) return std::nullopt;
  return static_cast<std::size_t>(found - planes.begin());
}

Plane scale_of(Plane moment) { return moment == Plane::kMoment1 ? Plane::kScale1 : Plane::kScale2; }

kernels::Moment8 code_of(Plane moment) {
  return moment == Plane::kMoment1 ? kernels::Moment8::kSigned : kernels::Moment8::kUnsigned;
}

bool is_coded(const PlaneFormat& format) {
  return format.dtype == DType::kU8 && (format.plane == Plane::kMoment1 || format.plane == Plane::kMoment2);
}

}  // namespace sluice::store
