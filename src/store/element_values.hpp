#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/moments8.hpp"
#include "sluice/types.hpp"
#include "store/layout.hpp"

namespace sluice::store {

/// Whether values of this type can be read as and written from fp32: F32, BF16, F16.
bool converts(DType dtype);

/// Requires: converts(dtype).
void to_f32(float* target, const void* source, DType dtype, std::size_t count);
/// To nearest even where it narrows.
void from_f32(void* target, DType dtype, const float* source, std::size_t count);

/// The index of a plane among those of a record.
std::optional<std::size_t> find_plane(std::span<const PlaneFormat> planes, Plane wanted);

/// Of an 8-bit moment: the plane of its scales, and which code it is in. Requires: kMoment1 or kMoment2.
Plane scale_of(Plane moment);
kernels::Moment8 code_of(Plane moment);

/// Whether the plane's values are codes of kernels/moments8.hpp, which mean nothing without their scales.
bool is_coded(const PlaneFormat& format);

}  // namespace sluice::store
