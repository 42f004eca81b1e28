#pragma once

#include <cstddef>
#include <span>

#include "sluice/status.hpp"

namespace sluice::trainer {

/// Where a model's weights come from and its gradients go; the model itself keeps neither.
/// Parts and the order of tensors in them: tensors_of().
class Parameters {
 public:
  virtual ~Parameters() = default;

  /// The part's weights as fp32. Blocks: until they are there.
  virtual Status load(std::size_t part, std::span<float> target) = 0;

  /// Adds to the part's gradients. Lifetime: `source` is reusable on return.
  virtual Status add_gradients(std::size_t part, std::span<const float> source) = 0;
};

}  // namespace sluice::trainer
