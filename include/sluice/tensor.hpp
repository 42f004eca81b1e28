#pragma once

#include <cstdint>

#include "sluice/types.hpp"

namespace sluice {

/// Whose memory a pointer is in.
enum class Location : std::uint8_t { kHost, kDevice };

/// A read-only view of one parameter's gathered weights: contiguous, 256-byte aligned, row-major.
/// Lifetime: that of the lease it came from.
struct ConstTensor {
  const void* data = nullptr;
  DType dtype = DType::kBF16;
  Location location = Location::kHost;
  std::uint64_t elements = 0;
};

/// Whether the same contribution goes on in a later call.
enum class More : std::uint8_t { kNo, kYes };

/// One contribution to a parameter's gradient: the whole parameter's values, contiguous.
struct Gradient {
  const void* data = nullptr;  ///< null: zeros, for a rank whose peers contribute (see none())
  DType dtype = DType::kF32;   ///< kF32, kBF16 or kF16
  Location location = Location::kHost;
  More more = More::kNo;  ///< kYes: parts of one contribution, added up in fp32; not with kBf16Once

  static Gradient f32(const float* values) { return {values, DType::kF32}; }
  static Gradient bf16(const void* values) { return {values, DType::kBF16}; }
  static Gradient f16(const void* values) { return {values, DType::kF16}; }
  /// Zeros: what a rank gives when other ranks have a gradient for the parameter and it has none.
  static Gradient none() { return {}; }
};

}  // namespace sluice
