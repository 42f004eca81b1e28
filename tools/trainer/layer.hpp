#pragma once

#include <cstddef>
#include <span>

#include "trainer/attention.hpp"
#include "trainer/matrix.hpp"
#include "trainer/shape.hpp"
#include "trainer/workspace.hpp"

namespace sluice::trainer {

/// The tensors of one layer, as views into the floats of its part: weights or their gradients.
struct LayerTensors {
  LayerTensors(const Shape& shape, std::span<float> part);

  std::span<float> attention_norm;  // [d]
  Matrix attention_in;              // [d, 3 d]
  Matrix attention_out;             // [d, d]
  std::span<float> mlp_norm;        // [d]
  Matrix mlp_in;                    // [d, 4 d]
  Matrix mlp_out;                   // [4 d, d]
};

/// One pre-norm transformer layer:
///   h = x + attention(norm(x) attention_in) attention_out
///   y = h + gelu(norm(h) mlp_in) mlp_out
/// It keeps nothing from forward to backward but its buffers: backward computes everything again from x.
class Layer {
 public:
  /// For at most `tokens` tokens a call.
  Layer(const Shape& shape, std::size_t tokens, Workspace& workspace);

  /// Shape: x, y [sequences * length, d].
  void forward(Matrix y, Matrix x, const LayerTensors& weights, std::size_t length);

  /// Turns d_y into d_x, in place; overwrites `gradients`.
  void backward(Matrix d_y, const LayerTensors& gradients, Matrix x, const LayerTensors& weights,
                std::size_t length);

 private:
  struct Activations {
    Matrix normed, qkv, attended, h, normed_h, mlp, gelu;
  };
  Activations compute_to_gelu(Matrix x, const LayerTensors& weights, std::size_t length);

  Attention attention_;
  Matrix normed_;                 // [n, d]
  Matrix qkv_;                    // [n, 3 d]
  Matrix attended_;               // [n, d]
  Matrix h_;                      // [n, d]
  Matrix normed_h_;               // [n, d]
  Matrix mlp_;                    // [n, 4 d]
  Matrix gelu_;                   // [n, 4 d]
  Matrix d_narrow_;               // [n, d]
  Matrix d_wide_;                 // [n, 4 d]
  std::span<float> inverse_rms_;  // [n]
};

}  // namespace sluice::trainer
