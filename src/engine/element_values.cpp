#include "engine/element_values.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/convert.hpp"

namespace sluice::engine {

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

std::uint64_t count_overflowed(const std::uint16_t* weights, const std::int16_t* residuals,
                               std::size_t count) {
  std::uint64_t overflowed = 0;
  for (std::size_t i = 0; i < count; ++i) overflowed += (weights[i] & 0x7fff) == 0x7f80 && residuals[i] != 0;
  return overflowed;
}

std::optional<std::size_t> find_plane(const store::ClassLayout& of_class, store::Plane wanted) {
  const auto found = std::ranges::find(of_class.planes, wanted, &store::PlaneFormat::plane);
  if (found == of_class.planes.end()) return std::nullopt;
  return static_cast<std::size_t>(found - of_class.planes.begin());
}

}  // namespace sluice::engine
