#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/status.hpp"
#include "trainer/layer.hpp"
#include "trainer/matrix.hpp"
#include "trainer/parameters.hpp"
#include "trainer/shape.hpp"
#include "trainer/workspace.hpp"

namespace sluice::trainer {

/// Sequences of bytes to learn from. Byte t + 1 of a row is what byte t should be followed by.
/// Shape: inputs, targets [sequences * length].
struct Batch {
  std::span<const std::uint8_t> inputs;
  std::span<const std::uint8_t> targets;
  std::size_t length = 0;
};

/// A decoder-only transformer over bytes that holds one part's weights at a time.
/// Activations are kept at the borders of layers alone; backward computes the rest again.
/// Threads: one at a time.
class Model {
 public:
  /// Takes all its memory from `workspace`, for at most `sequences` sequences of shape.context tokens.
  /// Requires: validate(shape); set_threads() was called on this thread.
  Model(const Shape& shape, std::size_t sequences, Workspace& workspace);

  /// The mean of -ln p(target), in nats a byte.
  Result<double> loss(Parameters& parameters, const Batch& batch);

  /// The same, and the gradients of `loss_scale` times it by all parameters to parameters.add_gradients().
  Result<double> learn(Parameters& parameters, const Batch& batch, double loss_scale = 1);

  /// Logits of what follows `text`: 256 of them.
  /// Requires: 1 to shape.context bytes. Lifetime: of the result until the next call.
  Result<std::span<const float>> next_byte_logits(Parameters& parameters, std::span<const std::uint8_t> text);

 private:
  Status load(Parameters& parameters, std::size_t part);
  Status forward(Parameters& parameters, std::span<const std::uint8_t> inputs, std::size_t length);
  Status backward(Parameters& parameters, const Batch& batch);
  Matrix boundary(std::size_t index, std::size_t tokens) const;

  Shape shape_;
  std::size_t tokens_;
  Layer layer_;
  Matrix boundaries_;  // [(layers + 1) * n, d]: what goes into each layer, and what comes out of the last
  Matrix normed_;      // [n, d]
  Matrix logits_;      // [n, 256]
  Matrix d_stream_;    // [n, d]
  std::span<float> losses_;       // [n]
  std::span<float> inverse_rms_;  // [n]
  std::span<float> weights_;      // of one part
  std::span<float> gradients_;    // of one part
};

}  // namespace sluice::trainer
