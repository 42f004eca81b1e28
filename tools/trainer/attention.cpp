#include "trainer/attention.hpp"

#include <algorithm>
#include <cmath>

#include "trainer/parallel.hpp"
#include "trainer/scalar_math.hpp"

namespace sluice::trainer {
namespace {

// Row t: the softmax of its first t + 1 scores times `scale`; the rest 0.
void causal_softmax(Matrix scores, float scale) {
  for (std::size_t t = 0; t < scores.rows; ++t) {
    float* const row = scores.row(t).data();
    const std::size_t seen = t + 1;
    const float top = largest({row, seen});
    for (std::size_t j = 0; j < seen; ++j) row[j] = exponential((row[j] - top) * scale);
    const float inverse = 1.0F / sum_in_lanes(seen, [=](std::size_t j) { return row[j]; });
    for (std::size_t j = 0; j < seen; ++j) row[j] *= inverse;
    std::fill(row + seen, row + scores.cols, 0.0F);
  }
}

// d_s = scale p (d_p - sum_j(p_j d_p_j)), in place of d_p; p is 0 where nothing is seen.
void softmax_backward(Matrix d_p, Matrix p, float scale) {
  for (std::size_t t = 0; t < p.rows; ++t) {
    const float* const weight = p.row(t).data();
    float* const d = d_p.row(t).data();
    const float mean = sum_in_lanes(p.cols, [=](std::size_t j) { return weight[j] * d[j]; });
    for (std::size_t j = 0; j < p.cols; ++j) d[j] = scale * weight[j] * (d[j] - mean);
  }
}

}  // namespace

Attention::Attention(std::size_t heads, std::size_t head_width, std::size_t context, Workspace& workspace)
    : heads_(heads),
      head_width_(head_width),
      cosines_(workspace.matrix(context, head_width / 2)),
      sines_(workspace.matrix(context, head_width / 2)),
      probabilities_(workspace.matrix(threads() * context, context)),
      d_probabilities_(workspace.matrix(threads() * context, context)) {
  for (std::size_t t = 0; t < context; ++t) {
    for (std::size_t j = 0; j < head_width / 2; ++j) {
      const double frequency =
          std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(head_width));
      cosines_.row(t)[j] = static_cast<float>(std::cos(static_cast<double>(t) * frequency));
      sines_.row(t)[j] = static_cast<float>(std::sin(static_cast<double>(t) * frequency));
    }
  }
}

void Attention::rotate(Matrix qkv, std::size_t length) const { turn(qkv, length, Turn::kForward); }

void Attention::rotate_backward(Matrix d_qkv, std::size_t length) const { turn(d_qkv, length, Turn::kBack); }

// Pairs (j, j + head_width / 2) are points in the plane; the inverse of a rotation is its transpose.
void Attention::turn(Matrix qkv, std::size_t length, Turn direction) const {
  const float sign = direction == Turn::kForward ? 1.0F : -1.0F;
  const std::size_t half = head_width_ / 2;
  for_each(qkv.rows, [&](std::size_t token, std::size_t) {
    const float* const cosine = cosines_.row(token % length).data();
    const float* const sine = sines_.row(token % length).data();
    for (std::size_t head = 0; head < 2 * heads_; ++head) {  // those of the queries, then those of the keys
      float* const x = qkv.row(token).data() + head * head_width_;
      float* const y = x + half;
      for (std::size_t j = 0; j < half; ++j) {
        const float turned_x = x[j] * cosine[j] - sign * y[j] * sine[j];
        const float turned_y = sign * x[j] * sine[j] + y[j] * cosine[j];
        x[j] = turned_x;
        y[j] = turned_y;
      }
    }
  });
}

// Calls work(rows, head, probabilities, d_probabilities): the first token of the sequence, the head's first
// column.
template <class Work>
void Attention::for_each_head(std::size_t tokens, std::size_t length, const Work& work) const {
  const std::size_t context = probabilities_.cols;
  for_each(tokens / length * heads_, [&](std::size_t index, std::size_t thread) {
    const auto square = [&](Matrix all) {
      return all.rows_from(thread * context, length).cols_from(0, length);
    };
    work(index / heads_ * length, index % heads_ * head_width_, square(probabilities_),
         square(d_probabilities_));
  });
}

void Attention::forward(Matrix y, Matrix qkv, std::size_t length) const {
  const std::size_t width = heads_ * head_width_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_width_));
  for_each_head(y.rows, length, [&](std::size_t token, std::size_t column, Matrix p, Matrix) {
    const Matrix rows = qkv.rows_from(token, length);
    const Matrix q = rows.cols_from(column, head_width_);              // [length, head_width]
    const Matrix k = rows.cols_from(width + column, head_width_);      // [length, head_width]
    const Matrix v = rows.cols_from(2 * width + column, head_width_);  // [length, head_width]
    multiply(p, q, transposed(k));                                     // [length, length]
    causal_softmax(p, scale);
    multiply(y.rows_from(token, length).cols_from(column, head_width_), p, v);
  });
}

void Attention::backward(Matrix d_qkv, Matrix d_y, Matrix qkv, std::size_t length) const {
  const std::size_t width = heads_ * head_width_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_width_));
  for_each_head(d_y.rows, length, [&](std::size_t token, std::size_t column, Matrix p, Matrix d_p) {
    const auto part = [&](Matrix all, std::size_t which) {
      return all.rows_from(token, length).cols_from(which * width + column, head_width_);
    };
    const Matrix q = part(qkv, 0), k = part(qkv, 1), v = part(qkv, 2);
    const Matrix d_out = part(d_y, 0);
    multiply(p, q, transposed(k));
    causal_softmax(p, scale);
    multiply(part(d_qkv, 2), transposed(p), d_out);
    multiply(d_p, d_out, transposed(v));
    softmax_backward(d_p, p, scale);
    multiply(part(d_qkv, 0), d_p, k);
    multiply(part(d_qkv, 1), transposed(d_p), q);
  });
}

}  // namespace sluice::trainer
