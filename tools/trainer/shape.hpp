#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/status.hpp"

namespace sluice::trainer {

inline constexpr std::size_t kVocabulary = 256;  // bytes

/// The numbers that fix a model.
struct Shape {
  std::size_t layers = 6;
  std::size_t width = 256;
  std::size_t heads = 4;
  std::size_t context = 128;  ///< tokens that a prediction may look at

  std::size_t head_width() const { return width / heads; }
};

/// Errors: kInvalidArgument with the number's name, its value and the accepted range.
Status validate(const Shape& shape);

/// What a tensor is for, which decides its first values and its decay.
enum class Role : std::uint8_t {
  kEmbedding,  ///< a row a byte
  kHead,       ///< the embedding again, as the output's weights: one state under two names
  kGain,       ///< of a norm
  kMatrix,     ///< [in, out]
  kResidual,   ///< a matrix whose product is added to the residual stream
};

struct TensorSpec {
  std::string name;
  Role role;
  std::size_t rows;
  std::size_t cols;

  std::size_t elements() const { return rows * cols; }
};

/// A model is a row of parts, each loaded as a whole: the embedding, the layers, the head.
inline std::size_t part_count(const Shape& shape) { return shape.layers + 2; }
inline std::size_t head_part(const Shape& shape) { return shape.layers + 1; }

/// The tensors of a part, in the order in which they lie in its floats.
std::vector<TensorSpec> tensors_of(const Shape& shape, std::size_t part);

/// Floats of a part.
std::size_t elements_of(const Shape& shape, std::size_t part);

/// Floats of the largest part: one buffer of this size takes any of them.
std::size_t largest_part_elements(const Shape& shape);

/// Of the whole model; what is tied counts once.
std::uint64_t parameter_count(const Shape& shape);

}  // namespace sluice::trainer
