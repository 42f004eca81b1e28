#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/planes.hpp"
#include "kernels/update.hpp"

namespace sluice::bench {

/// A group's state in memory, chunk after chunk: a chunk's planes side by side as in a record, its gradient plane
/// behind them.
class ChunkState {
 public:
  struct Shape {
    Policy policy = Policy::kBf16Split;
    Optimizer optimizer;
    kernels::GradientPlane gradient = kernels::GradientPlane::kF32;
    std::size_t chunk_elements = 0;  ///< a multiple of a tile
  };

  /// As many chunks as `room` has room for, at most `chunks_max`, a multiple of `threads`; filled with what a few
  /// steps leave, so that no value is denormal or special.
  /// Requires: room for a chunk a thread.
  ChunkState(const Shape& shape, std::span<std::byte> room, std::size_t threads, std::size_t chunks_max);

  std::size_t chunks() const { return chunks_; }
  std::span<const kernels::PlaneFormat> formats() const { return formats_; }

  /// The elements of one tile.
  kernels::Run tile(std::size_t chunk, std::size_t first_element) const;

  /// Read and written by an update, by the count of planes.
  double bytes_per_element() const;

 private:
  std::size_t chunk_bytes() const;
  void fill() const;

  Shape shape_;
  std::vector<kernels::PlaneFormat> formats_;
  std::byte* base_;
  std::size_t chunks_;
};

/// Bytes an element of a gradient plane.
std::size_t gradient_bytes(kernels::GradientPlane plane);

}  // namespace sluice::bench
