#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "sluice/types.hpp"
#include "store/layout.hpp"

namespace sluice::engine {

/// Whether values of this type can be read as and written from fp32: F32, BF16, F16.
bool converts(DType dtype);

/// Requires: converts(dtype).
void to_f32(float* target, const void* source, DType dtype, std::size_t count);
/// To nearest even where it narrows.
void from_f32(void* target, DType dtype, const float* source, std::size_t count);

/// Finite masters that show an infinite weight: those whose residual takes the infinity back.
std::uint64_t count_overflowed(const std::uint16_t* weights, const std::int16_t* residuals,
                               std::size_t count);

/// The index of a plane in its class's records.
std::optional<std::size_t> find_plane(const store::ClassLayout& of_class, store::Plane wanted);

}  // namespace sluice::engine
