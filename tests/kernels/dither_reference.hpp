#pragma once

#include <bit>
#include <cstdint>

namespace sluice::kernels {

/// The random bits of one element, by the words of kernels/dither-inl.hpp.
inline std::uint32_t dither_bits(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index >> 32) * 0x9E3779B97F4A7C15u;
  z ^= z >> 30;
  z *= 0xBF58476D1CE4E5B9u;
  z ^= z >> 27;
  z *= 0x94D049BB133111EBu;
  z ^= z >> 31;
  std::uint32_t x = static_cast<std::uint32_t>(index) ^ static_cast<std::uint32_t>(z);
  x ^= x >> 17;
  x *= 0xED5AD4BBu;
  x += static_cast<std::uint32_t>(z >> 32);
  x ^= x >> 11;
  x *= 0xAC4C1B51u;
  x ^= x >> 15;
  x *= 0x31848BABu;
  return x ^ (x >> 14);
}

/// `value` rounded to bf16 by 16 random bits; towards 0 from the largest finite bf16 on.
inline std::uint16_t dithered(float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool has_next = (bits & 0x7FFFFFFF) < 0x7F7F0000;
  return static_cast<std::uint16_t>((bits + (has_next ? random : 0)) >> 16);
}

}  // namespace sluice::kernels
