#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

/// Conversions of `elements` elements, bit-equal on every target. Rounding is to nearest, ties to even; -0
/// stays -0, what is too large becomes Inf, a NaN stays a NaN (made quiet, leading payload bits kept).
/// Requires: pointers aligned to their elements, source and target not overlapping.
/// Threads: any.
void bf16_to_f32(float* target, const std::uint16_t* source, std::size_t elements);
void f32_to_bf16(std::uint16_t* target, const float* source, std::size_t elements);
void f16_to_f32(float* target, const std::uint16_t* source, std::size_t elements);
void f32_to_f16(std::uint16_t* target, const float* source, std::size_t elements);

/// master bits = (weight << 16) + residual: the value that split_bf16 was given, whatever its weight shows.
void join_bf16_split(float* master, const std::uint16_t* weight, const std::int16_t* residual,
                     std::size_t elements);

/// weight = (bits + 0x8000) >> 16, residual = bits - (weight << 16): to nearest, ties away from zero, nothing
/// lost but the payload of a NaN (stored as 0x7FC0, 0). Returns: how many elements are finite but show an Inf
/// weight (above 0x7F7F7FFF in magnitude).
std::uint64_t split_bf16(std::uint16_t* weight, std::int16_t* residual, const float* master,
                         std::size_t elements);

}  // namespace sluice::kernels
