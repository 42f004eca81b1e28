#pragma once

#include <cstddef>

#include "trainer/matrix.hpp"
#include "trainer/workspace.hpp"

namespace sluice::trainer {

/// Causal multi-head self-attention with rotary positions.
/// A token's row of `qkv` is its queries, keys and values, each d = heads * head_width floats, head after
/// head. Threads: one at a time; each call splits sequences and heads over threads(). Source: Vaswani et al.
/// 2017, equation 1; Su et al. 2021 (RoFormer), equation 34.
class Attention {
 public:
  /// Requires: head_width is even; `context` bounds every `length` below.
  Attention(std::size_t heads, std::size_t head_width, std::size_t context, Workspace& workspace);

  /// Turns queries and keys by their position in the sequence, in place.
  /// Shape: qkv [sequences * length, 3 d].
  void rotate(Matrix qkv, std::size_t length) const;
  /// Its derivative: turns the gradients of queries and keys back.
  void rotate_backward(Matrix d_qkv, std::size_t length) const;

  /// y = softmax(q k^T / sqrt(head_width)) v for each head, over earlier tokens and the token itself.
  /// Shape: y [sequences * length, d]; qkv rotated.
  void forward(Matrix y, Matrix qkv, std::size_t length) const;
  /// Overwrites d_qkv.
  void backward(Matrix d_qkv, Matrix d_y, Matrix qkv, std::size_t length) const;

 private:
  enum class Turn { kForward, kBack };
  void turn(Matrix qkv, std::size_t length, Turn direction) const;
  template <class Work>
  void for_each_head(std::size_t tokens, std::size_t length, const Work& work) const;

  std::size_t heads_;
  std::size_t head_width_;
  Matrix cosines_;          // [context, head_width / 2]
  Matrix sines_;            // [context, head_width / 2]
  Matrix probabilities_;    // [threads * context, context]: a square for each thread
  Matrix d_probabilities_;  // as probabilities_
};

}  // namespace sluice::trainer
