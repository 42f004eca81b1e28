#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "trainer/parameters.hpp"
#include "trainer/shape.hpp"

namespace sluice::trainer {

/// A model's weights and gradients in two plain arrays, part after part, the head's table tied to the
/// embedding.
class ArrayParameters : public Parameters {
 public:
  ArrayParameters(const Shape& shape, std::vector<float> parameters)
      : shape_(shape), weights(std::move(parameters)), gradients(weights.size()) {}

  Status load(std::size_t part, std::span<float> target) override {
    for (const TensorSpec& tensor : tensors_of(shape_, part)) {
      std::ranges::copy(std::span(weights).subspan(first_of(part, tensor), tensor.elements()),
                        target.begin());
      target = target.subspan(tensor.elements());
    }
    return {};
  }

  Status add_gradients(std::size_t part, std::span<const float> source) override {
    for (const TensorSpec& tensor : tensors_of(shape_, part)) {
      const auto sum = std::span(gradients).subspan(first_of(part, tensor), tensor.elements());
      std::ranges::transform(sum, source.first(tensor.elements()), sum.begin(), std::plus());
      source = source.subspan(tensor.elements());
    }
    return {};
  }

 private:
  std::size_t first_of(std::size_t wanted_part, const TensorSpec& wanted) const {
    if (wanted.role == Role::kHead) return 0;
    std::size_t first = 0;
    for (std::size_t part = 0; part <= wanted_part; ++part) {
      for (const TensorSpec& tensor : tensors_of(shape_, part)) {
        if (tensor.name == wanted.name) return first;
        first += tensor.elements();
      }
    }
    return first;
  }

  Shape shape_;

 public:
  std::vector<float> weights;
  std::vector<float> gradients;
};

}  // namespace sluice::trainer
