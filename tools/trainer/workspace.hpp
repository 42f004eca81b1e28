#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "trainer/matrix.hpp"

namespace sluice::trainer {

/// All memory that the trainer computes in, allocated at start and counted.
/// Invariant: bytes() = the sum of all blocks handed out. Lifetime: blocks live as long as the workspace.
class Workspace {
 public:
  /// Zeros, aligned for any vector unit.
  std::span<float> floats(std::size_t count) {
    bytes_ += count * sizeof(float);
    blocks_.emplace_back(new (kAlignment) float[count]());
    return {blocks_.back().get(), count};
  }

  Matrix matrix(std::size_t rows, std::size_t cols) { return {floats(rows * cols).data(), rows, cols, cols}; }

  std::uint64_t bytes() const { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* block) const { ::operator delete[](block, kAlignment); }
  };
  std::vector<std::unique_ptr<float[], Free>> blocks_;
  std::uint64_t bytes_ = 0;
};

}  // namespace sluice::trainer
