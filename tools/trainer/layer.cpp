#include "trainer/layer.hpp"

#include <algorithm>

#include "trainer/layers.hpp"
#include "trainer/parallel.hpp"

namespace sluice::trainer {
namespace {

void copy(Matrix target, Matrix source) {
  for_each(source.rows, [=](std::size_t token, std::size_t) {
    std::ranges::copy(source.row(token), target.row(token).begin());
  });
}

}  // namespace

LayerTensors::LayerTensors(const Shape& shape, std::span<float> part) {
  const std::size_t d = shape.width;
  const auto take = [&](std::size_t rows, std::size_t cols) {
    const Matrix tensor{part.data(), rows, cols, cols};
    part = part.subspan(rows * cols);
    return tensor;
  };
  attention_norm = take(1, d).row(0);
  attention_in = take(d, 3 * d);
  attention_out = take(d, d);
  mlp_norm = take(1, d).row(0);
  mlp_in = take(d, 4 * d);
  mlp_out = take(4 * d, d);
}

Layer::Layer(const Shape& shape, std::size_t tokens, Workspace& workspace)
    : attention_(shape.heads, shape.head_width(), shape.context, workspace),
      normed_(workspace.matrix(tokens, shape.width)),
      qkv_(workspace.matrix(tokens, 3 * shape.width)),
      attended_(workspace.matrix(tokens, shape.width)),
      h_(workspace.matrix(tokens, shape.width)),
      normed_h_(workspace.matrix(tokens, shape.width)),
      mlp_(workspace.matrix(tokens, 4 * shape.width)),
      gelu_(workspace.matrix(tokens, 4 * shape.width)),
      d_narrow_(workspace.matrix(tokens, shape.width)),
      d_wide_(workspace.matrix(tokens, 4 * shape.width)),
      inverse_rms_(workspace.floats(tokens)) {}

Layer::Activations Layer::compute_to_gelu(Matrix x, const LayerTensors& weights, std::size_t length) {
  const auto first = [&](Matrix buffer) { return buffer.rows_from(0, x.rows); };
  const Activations a{first(normed_),   first(qkv_), first(attended_), first(h_),
                      first(normed_h_), first(mlp_), first(gelu_)};
  rms_norm(a.normed, x, weights.attention_norm);
  multiply(a.qkv, a.normed, weights.attention_in);
  attention_.rotate(a.qkv, length);
  attention_.forward(a.attended, a.qkv, length);
  copy(a.h, x);
  multiply(a.h, a.attended, weights.attention_out, Into::kAdd);
  rms_norm(a.normed_h, a.h, weights.mlp_norm);
  multiply(a.mlp, a.normed_h, weights.mlp_in);
  gelu(a.gelu, a.mlp);
  return a;
}

void Layer::forward(Matrix y, Matrix x, const LayerTensors& weights, std::size_t length) {
  const Activations a = compute_to_gelu(x, weights, length);
  copy(y, a.h);
  multiply(y, a.gelu, weights.mlp_out, Into::kAdd);
}

// d_y gathers the gradient of the residual stream on its way from y over h to x.
void Layer::backward(Matrix d_y, const LayerTensors& gradients, Matrix x, const LayerTensors& weights,
                     std::size_t length) {
  const Activations a = compute_to_gelu(x, weights, length);
  const Matrix d_narrow = d_narrow_.rows_from(0, x.rows);

  const Matrix d_mlp = d_wide_.rows_from(0, x.rows);
  multiply(gradients.mlp_out, transposed(a.gelu), d_y);
  multiply(d_mlp, d_y, transposed(weights.mlp_out));
  gelu_backward(d_mlp, a.mlp);
  multiply(gradients.mlp_in, transposed(a.normed_h), d_mlp);
  multiply(d_narrow, d_mlp, transposed(weights.mlp_in));
  rms_norm_backward(d_y, gradients.mlp_norm, d_narrow, a.h, weights.mlp_norm, inverse_rms_);

  const Matrix d_qkv = d_mlp.cols_from(0, a.qkv.cols);
  multiply(gradients.attention_out, transposed(a.attended), d_y);
  multiply(d_narrow, d_y, transposed(weights.attention_out));
  attention_.backward(d_qkv, d_narrow, a.qkv, length);
  attention_.rotate_backward(d_qkv, length);
  multiply(gradients.attention_in, transposed(a.normed), d_qkv);
  multiply(d_narrow, d_qkv, transposed(weights.attention_in));
  rms_norm_backward(d_y, gradients.attention_norm, d_narrow, x, weights.attention_norm, inverse_rms_);
}

}  // namespace sluice::trainer
