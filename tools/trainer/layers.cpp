#include "trainer/layers.hpp"

#include <algorithm>
#include <cmath>

#include "trainer/parallel.hpp"
#include "trainer/scalar_math.hpp"

namespace sluice::trainer {
namespace {

constexpr float kNormEpsilon = 1e-5F;
constexpr float kGeluScale = 1.595769122F;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.044715F;

// Columns that one thread sums over all rows.
constexpr std::size_t kColumnBlock = 32;

float inverse_rms_of(std::span<const float> x) {
  const float* const values = x.data();
  const float squares = sum_in_lanes(x.size(), [=](std::size_t j) { return values[j] * values[j]; });
  return 1.0F / std::sqrt(squares / static_cast<float>(x.size()) + kNormEpsilon);
}

float gelu_gate(float x) { return 1.0F / (1.0F + exponential(-kGeluScale * (x + kGeluCubic * x * x * x))); }

template <class Work>
void for_each_column_block(std::size_t cols, const Work& work) {
  for_each((cols + kColumnBlock - 1) / kColumnBlock, [&](std::size_t block, std::size_t) {
    work(block * kColumnBlock, std::min(cols, (block + 1) * kColumnBlock));
  });
}

}  // namespace

void rms_norm(Matrix y, Matrix x, std::span<const float> gain) {
  for_each(x.rows, [=](std::size_t token, std::size_t) {
    const float* const from = x.row(token).data();
    float* const to = y.row(token).data();
    const float inverse = inverse_rms_of(x.row(token));
    for (std::size_t j = 0; j < x.cols; ++j) to[j] = from[j] * inverse * gain[j];
  });
}

// With r = 1 / sqrt(mean(x^2) + e): d_x_i = r g_i d_y_i - x_i r^3 / d * sum_j(d_y_j g_j x_j).
void rms_norm_backward(Matrix d_x, std::span<float> d_gain, Matrix d_y, Matrix x, std::span<const float> gain,
                       std::span<float> inverse_rms) {
  for_each(x.rows, [=](std::size_t token, std::size_t) {
    const float* const in = x.row(token).data();
    const float* const d_out = d_y.row(token).data();
    float* const d_in = d_x.row(token).data();
    const float r = inverse_rms_of(x.row(token));
    const float dot = sum_in_lanes(x.cols, [=](std::size_t j) { return d_out[j] * gain[j] * in[j]; });
    const float along = dot * r * r * r / static_cast<float>(x.cols);
    for (std::size_t j = 0; j < x.cols; ++j) d_in[j] += r * gain[j] * d_out[j] - in[j] * along;
    inverse_rms[token] = r;
  });
  for_each_column_block(x.cols, [=](std::size_t first, std::size_t end) {
    std::fill(d_gain.begin() + static_cast<std::ptrdiff_t>(first),
              d_gain.begin() + static_cast<std::ptrdiff_t>(end), 0.0F);
    for (std::size_t token = 0; token < x.rows; ++token) {
      const float* const in = x.row(token).data();
      const float* const d_out = d_y.row(token).data();
      for (std::size_t j = first; j < end; ++j) d_gain[j] += d_out[j] * in[j] * inverse_rms[token];
    }
  });
}

void gelu(Matrix y, Matrix x) {
  for_each(x.rows, [=](std::size_t token, std::size_t) {
    const float* const in = x.row(token).data();
    float* const out = y.row(token).data();
    for (std::size_t j = 0; j < x.cols; ++j) out[j] = in[j] * gelu_gate(in[j]);
  });
}

void gelu_backward(Matrix d_y, Matrix x) {
  for_each(x.rows, [=](std::size_t token, std::size_t) {
    const float* const in = x.row(token).data();
    float* const d = d_y.row(token).data();
    for (std::size_t j = 0; j < x.cols; ++j) {
      const float gate = gelu_gate(in[j]);
      const float slope = kGeluScale * (1.0F + 3.0F * kGeluCubic * in[j] * in[j]);
      d[j] *= gate + in[j] * gate * (1.0F - gate) * slope;
    }
  });
}

void embed(Matrix y, Matrix table, std::span<const std::uint8_t> tokens) {
  for_each(y.rows, [=](std::size_t token, std::size_t) {
    std::ranges::copy(table.row(tokens[token]), y.row(token).begin());
  });
}

void embed_backward(Matrix d_table, Matrix d_y, std::span<const std::uint8_t> tokens) {
  for_each_column_block(d_table.cols, [=](std::size_t first, std::size_t end) {
    for (std::size_t row = 0; row < d_table.rows; ++row) {
      std::ranges::fill(d_table.row(row).subspan(first, end - first), 0.0F);
    }
    for (std::size_t token = 0; token < d_y.rows; ++token) {
      const float* const from = d_y.row(token).data();
      float* const to = d_table.row(tokens[token]).data();
      for (std::size_t j = first; j < end; ++j) to[j] += from[j];
    }
  });
}

double cross_entropy(Matrix logits, std::span<const std::uint8_t> targets, std::span<float> losses) {
  const float share = 1.0F / static_cast<float>(logits.rows);
  for_each(logits.rows, [=](std::size_t token, std::size_t) {
    float* const row = logits.row(token).data();
    const float top = largest(logits.row(token));
    const float at_target = row[targets[token]] - top;
    for (std::size_t j = 0; j < logits.cols; ++j) row[j] = exponential(row[j] - top);
    const float sum = sum_in_lanes(logits.cols, [=](std::size_t j) { return row[j]; });
    const float scale = share / sum;
    for (std::size_t j = 0; j < logits.cols; ++j) row[j] *= scale;
    row[targets[token]] -= share;
    losses[token] = std::log(sum) - at_target;
  });
  double total = 0;
  for (const float loss : losses.first(logits.rows)) total += static_cast<double>(loss);
  return total / static_cast<double>(logits.rows);
}

}  // namespace sluice::trainer
