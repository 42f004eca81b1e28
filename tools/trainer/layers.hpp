#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/matrix.hpp"

/// The layers of a transformer that are no plain matrix product, each as a function and its derivative on
/// views. Names: n tokens, d width, `d_x` the gradient of the loss by x. Rows are tokens, sequence after
/// sequence. Threads: each splits its work over threads() so that the result does not depend on their number.
namespace sluice::trainer {

/// y = g x / sqrt(mean(x^2) + 1e-5), row by row.
/// Shape: x, y [n, d]; gain [d]. Source: Zhang and Sennrich 2019, equation 4.
void rms_norm(Matrix y, Matrix x, std::span<const float> gain);
/// Adds to d_x; overwrites d_gain.
/// Requires: inverse_rms has room for n floats.
void rms_norm_backward(Matrix d_x, std::span<float> d_gain, Matrix d_y, Matrix x, std::span<const float> gain,
                       std::span<float> inverse_rms);

/// y = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
/// Source: Hendrycks and Gimpel 2016, the tanh form.
void gelu(Matrix y, Matrix x);
/// Turns d_y into d_x, in place.
void gelu_backward(Matrix d_y, Matrix x);

/// The rows of `table` that the bytes name.
/// Shape: y [n, d], table [256, d], tokens [n].
void embed(Matrix y, Matrix table, std::span<const std::uint8_t> tokens);
/// Overwrites d_table.
void embed_backward(Matrix d_table, Matrix d_y, std::span<const std::uint8_t> tokens);

/// Turns logits into the gradient of the mean of -ln softmax(logits)[target], in place, and returns that
/// mean. Shape: logits [n, 256], targets [n]; losses has room for n floats.
double cross_entropy(Matrix logits, std::span<const std::uint8_t> targets, std::span<float> losses);

}  // namespace sluice::trainer
