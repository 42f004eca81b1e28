#include "chunk_state.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/constants.hpp"

namespace sluice::bench {

using kernels::GradientPlane;
using kernels::kTileElements;
using kernels::PlaneFormat;

namespace {

// Scattered around 1e-5 by 5e-3, none of them zero.
void fill_gradient(std::byte* target, GradientPlane plane, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    const auto scattered = static_cast<std::uint32_t>(i * 2654435761u);
    const float value = 1e-2f * (static_cast<float>(scattered >> 8) * 0x1p-24f - 0.5f) + 1e-5f;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto high_half = static_cast<std::uint16_t>(bits >> 16);
    if (plane == GradientPlane::kF32) {
      std::memcpy(target + i * sizeof bits, &bits, sizeof bits);
    } else {
      std::memcpy(target + i * sizeof high_half, &high_half, sizeof high_half);
    }
  }
}

}  // namespace

std::size_t gradient_bytes(GradientPlane plane) { return plane == GradientPlane::kF32 ? 4 : 2; }

ChunkState::ChunkState(const Shape& shape, std::span<std::byte> room, std::size_t threads,
                       std::size_t chunks_max)
    : shape_(shape),
      formats_(kernels::planes_of(shape.policy, shape.optimizer, DType::kF32)),
      base_(room.data()),
      chunks_(std::min(room.size() / chunk_bytes(), chunks_max) / threads * threads) {
  fill();
}

std::size_t ChunkState::chunk_bytes() const {
  std::size_t bytes = shape_.chunk_elements * gradient_bytes(shape_.gradient);
  for (const PlaneFormat& format : formats_) bytes += format.bytes(shape_.chunk_elements);
  return bytes;
}

kernels::Run ChunkState::tile(std::size_t chunk, std::size_t first_element) const {
  kernels::Run run{.policy = shape_.policy, .gradient_plane = shape_.gradient, .elements = kTileElements};
  std::byte* at_plane = base_ + chunk * chunk_bytes();
  for (const PlaneFormat& format : formats_) {
    kernels::at(run.planes, format.plane) = at_plane + format.bytes(first_element);
    at_plane += format.bytes(shape_.chunk_elements);
  }
  run.gradient = at_plane + first_element * gradient_bytes(shape_.gradient);
  return run;
}

double ChunkState::bytes_per_element() const {
  std::size_t tile_bytes = kTileElements * gradient_bytes(shape_.gradient);
  for (const PlaneFormat& format : formats_) tile_bytes += 2 * format.bytes(kTileElements);
  return static_cast<double>(tile_bytes) / static_cast<double>(kTileElements);
}

void ChunkState::fill() const {
  constexpr std::uint64_t kSteps = 3;
  const std::size_t gradient_tile_bytes = kTileElements * gradient_bytes(shape_.gradient);
  const kernels::Run first = tile(0, 0);
  auto* const first_gradient = const_cast<std::byte*>(first.gradient);
  fill_gradient(first_gradient, shape_.gradient, kTileElements);
  for (const PlaneFormat& format : formats_)
    std::memset(kernels::at(first.planes, format.plane), 0, format.bytes(kTileElements));
  for (std::uint64_t step = 1; step <= kSteps; ++step)
    kernels::update(first, kernels::make_factors(shape_.optimizer, step, 1.0));

  for (std::size_t chunk = 0; chunk < chunks_; ++chunk) {
    for (std::size_t element = 0; element < shape_.chunk_elements; element += kTileElements) {
      const kernels::Run copy = tile(chunk, element);
      if (copy.gradient == first.gradient) continue;
      for (const PlaneFormat& format : formats_)
        std::memcpy(kernels::at(copy.planes, format.plane), kernels::at(first.planes, format.plane),
                    format.bytes(kTileElements));
      std::memcpy(const_cast<std::byte*>(copy.gradient), first.gradient, gradient_tile_bytes);
    }
  }
}

}  // namespace sluice::bench
