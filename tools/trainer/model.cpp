#include "trainer/model.hpp"

#include <algorithm>

#include "trainer/layers.hpp"

namespace sluice::trainer {
namespace {

// The head's part: the last norm's gain, then the embedding as the output's weights.
struct HeadTensors {
  HeadTensors(const Shape& shape, std::span<float> part)
      : gain(part.first(shape.width)),
        table{part.data() + shape.width, kVocabulary, shape.width, shape.width} {}
  std::span<float> gain;  // [d]
  Matrix table;           // [256, d]
};

Matrix embedding_table(const Shape& shape, std::span<float> part) {
  return {part.data(), kVocabulary, shape.width, shape.width};
}

}  // namespace

Model::Model(const Shape& shape, std::size_t sequences, Workspace& workspace)
    : shape_(shape),
      tokens_(sequences * shape.context),
      layer_(shape, tokens_, workspace),
      boundaries_(workspace.matrix((shape.layers + 1) * tokens_, shape.width)),
      normed_(workspace.matrix(tokens_, shape.width)),
      logits_(workspace.matrix(tokens_, kVocabulary)),
      d_stream_(workspace.matrix(tokens_, shape.width)),
      losses_(workspace.floats(tokens_)),
      inverse_rms_(workspace.floats(tokens_)),
      weights_(workspace.floats(largest_part_elements(shape))),
      gradients_(workspace.floats(largest_part_elements(shape))) {}

Matrix Model::boundary(std::size_t index, std::size_t tokens) const {
  return boundaries_.rows_from(index * tokens_, tokens);
}

Status Model::load(Parameters& parameters, std::size_t part) {
  return parameters.load(part, weights_.first(elements_of(shape_, part)));
}

// Leaves the logits in logits_, and the head's weights in weights_.
Status Model::forward(Parameters& parameters, std::span<const std::uint8_t> inputs, std::size_t length) {
  const std::size_t n = inputs.size();
  SLUICE_RETURN_IF_ERROR(load(parameters, 0));
  embed(boundary(0, n), embedding_table(shape_, weights_), inputs);
  for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
    SLUICE_RETURN_IF_ERROR(load(parameters, layer + 1));
    layer_.forward(boundary(layer + 1, n), boundary(layer, n), LayerTensors(shape_, weights_), length);
  }
  SLUICE_RETURN_IF_ERROR(load(parameters, head_part(shape_)));
  const HeadTensors head(shape_, weights_);
  rms_norm(normed_.rows_from(0, n), boundary(shape_.layers, n), head.gain);
  multiply(logits_.rows_from(0, n), normed_.rows_from(0, n), transposed(head.table));
  return {};
}

// From what forward() left, with the logits turned into their gradient.
Status Model::backward(Parameters& parameters, const Batch& batch) {
  const std::size_t n = batch.inputs.size();
  const auto give = [&](std::size_t part) {
    return parameters.add_gradients(part, gradients_.first(elements_of(shape_, part)));
  };
  const Matrix d_logits = logits_.rows_from(0, n);
  const Matrix d_stream = d_stream_.rows_from(0, n);
  const Matrix normed = normed_.rows_from(0, n);
  const HeadTensors head(shape_, weights_), d_head(shape_, gradients_);
  multiply(d_head.table, transposed(d_logits), normed);
  multiply(normed, d_logits, head.table);  // the gradient of `normed`, which is needed no more
  std::ranges::fill(std::span(d_stream.data, n * shape_.width), 0.0F);
  rms_norm_backward(d_stream, d_head.gain, normed, boundary(shape_.layers, n), head.gain, inverse_rms_);
  SLUICE_RETURN_IF_ERROR(give(head_part(shape_)));

  for (std::size_t layer = shape_.layers; layer-- > 0;) {
    SLUICE_RETURN_IF_ERROR(load(parameters, layer + 1));
    layer_.backward(d_stream, LayerTensors(shape_, gradients_), boundary(layer, n),
                    LayerTensors(shape_, weights_), batch.length);
    SLUICE_RETURN_IF_ERROR(give(layer + 1));
  }
  embed_backward(embedding_table(shape_, gradients_), d_stream, batch.inputs);
  return give(0);
}

Result<double> Model::loss(Parameters& parameters, const Batch& batch) {
  SLUICE_RETURN_IF_ERROR(forward(parameters, batch.inputs, batch.length));
  return cross_entropy(logits_.rows_from(0, batch.inputs.size()), batch.targets, losses_);
}

Result<double> Model::learn(Parameters& parameters, const Batch& batch, double loss_scale) {
  const Result<double> mean = loss(parameters, batch);
  if (!mean.ok()) return mean;
  if (loss_scale != 1) {
    for (float& gradient : std::span(logits_.data, batch.inputs.size() * kVocabulary))
      gradient *= static_cast<float>(loss_scale);
  }
  SLUICE_RETURN_IF_ERROR(backward(parameters, batch));
  return mean;
}

Result<std::span<const float>> Model::next_byte_logits(Parameters& parameters,
                                                       std::span<const std::uint8_t> text) {
  SLUICE_RETURN_IF_ERROR(forward(parameters, text, text.size()));
  return std::span<const float>(logits_.row(text.size() - 1));
}

}  // namespace sluice::trainer
