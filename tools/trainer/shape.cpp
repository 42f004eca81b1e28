#include "trainer/shape.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace sluice::trainer {

Status validate(const Shape& shape) {
  const auto refuse = [](std::string_view name, std::size_t value, std::string_view accepted) {
    return Status(Code::kInvalidArgument, fmt::format("{} is {}; accepted: {}", name, value, accepted));
  };
  if (shape.layers < 1 || shape.layers > 1000) return refuse("layers", shape.layers, "1..1000");
  if (shape.width < 2 || shape.width > 1 << 16) return refuse("width", shape.width, "2..65536");
  if (shape.heads < 1 || shape.width % (2 * shape.heads) != 0) {
    return refuse("heads", shape.heads,
                  fmt::format("numbers whose double divides the width {}", shape.width));
  }
  if (shape.context < 2 || shape.context > 1 << 14) return refuse("context", shape.context, "2..16384");
  return {};
}

std::vector<TensorSpec> tensors_of(const Shape& shape, std::size_t part) {
  const std::size_t d = shape.width;
  if (part == 0) return {{"embedding", Role::kEmbedding, kVocabulary, d}};
  if (part == head_part(shape)) {
    return {{"final_norm", Role::kGain, 1, d}, {"head", Role::kHead, kVocabulary, d}};
  }
  const auto name = [&](std::string_view tensor) { return fmt::format("layer{:03}.{}", part - 1, tensor); };
  return {{name("attention_norm"), Role::kGain, 1, d},    {name("attention_in"), Role::kMatrix, d, 3 * d},
          {name("attention_out"), Role::kResidual, d, d}, {name("mlp_norm"), Role::kGain, 1, d},
          {name("mlp_in"), Role::kMatrix, d, 4 * d},      {name("mlp_out"), Role::kResidual, 4 * d, d}};
}

std::size_t elements_of(const Shape& shape, std::size_t part) {
  std::size_t elements = 0;
  for (const TensorSpec& tensor : tensors_of(shape, part)) elements += tensor.elements();
  return elements;
}

std::size_t largest_part_elements(const Shape& shape) {
  return std::max({elements_of(shape, 0), elements_of(shape, 1), elements_of(shape, head_part(shape))});
}

std::uint64_t parameter_count(const Shape& shape) {
  std::uint64_t elements = 0;
  for (std::size_t part = 0; part < part_count(shape); ++part) {
    for (const TensorSpec& tensor : tensors_of(shape, part)) {
      if (tensor.role != Role::kHead) elements += tensor.elements();
    }
  }
  return elements;
}

}  // namespace sluice::trainer
