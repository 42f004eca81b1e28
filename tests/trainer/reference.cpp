#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice::trainer::reference {

Values rms_norm(const Values& x, const Values& gain) {
  const std::size_t d = gain.size();
  Values y(x.size());
  for (std::size_t row = 0; row < x.size(); row += d) {
    double squares = 0;
    for (std::size_t j = 0; j < d; ++j) squares += x[row + j] * x[row + j];
    const double rms = std::sqrt(squares / static_cast<double>(d) + static_cast<double>(1e-5F));
    for (std::size_t j = 0; j < d; ++j) y[row + j] = x[row + j] / rms * gain[j];
  }
  return y;
}

double gelu(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + static_cast<double>(0.044715F) * x * x * x)));
}

Values product(const Values& a, const Values& b, std::size_t inner) {
  const std::size_t m = a.size() / inner, n = b.size() / inner;
  Values c(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t k = 0; k < inner; ++k) {
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += a[i * inner + k] * b[k * n + j];
    }
  }
  return c;
}

Values attention(const Values& qkv, std::size_t width, std::size_t heads, std::size_t length) {
  const std::size_t tokens = qkv.size() / (3 * width), w = width / heads;
  // Element j of a head's query (0), key (1) or value (2), the first two turned by their position.
  const auto at = [&](std::size_t token, std::size_t which, std::size_t head, std::size_t j) {
    const double* x = &qkv[token * 3 * width + which * width + head * w];
    if (which == 2) return x[j];
    const std::size_t pair = j % (w / 2);
    const double angle = static_cast<double>(token % length) *
                         std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(w));
    const double a = x[pair], b = x[pair + w / 2];
    return j < w / 2 ? a * std::cos(angle) - b * std::sin(angle) : a * std::sin(angle) + b * std::cos(angle);
  };
  Values y(tokens * width);
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t start = token - token % length;
      Values weights;
      double sum = 0;
      for (std::size_t seen = start; seen <= token; ++seen) {
        double score = 0;
        for (std::size_t j = 0; j < w; ++j) score += at(token, 0, head, j) * at(seen, 1, head, j);
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(w))));
        sum += weights.back();
      }
      for (std::size_t seen = start; seen <= token; ++seen) {
        for (std::size_t j = 0; j < w; ++j) {
          y[token * width + head * w + j] += weights[seen - start] / sum * at(seen, 2, head, j);
        }
      }
    }
  }
  return y;
}

double cross_entropy(const Values& logits, std::span<const std::uint8_t> targets) {
  double total = 0;
  for (std::size_t token = 0; token < targets.size(); ++token) {
    const double* row = &logits[token * kVocabulary];
    double sum = 0;
    for (std::size_t j = 0; j < kVocabulary; ++j) sum += std::exp(row[j]);
    total += std::log(sum) - row[targets[token]];
  }
  return total / static_cast<double>(targets.size());
}

double model_loss(const Shape& shape, const Values& parameters, std::span<const std::uint8_t> inputs,
                  std::span<const std::uint8_t> targets, std::size_t length) {
  const std::size_t d = shape.width;
  auto next = parameters.begin();
  const auto take = [&](std::size_t count) {
    Values values(next, next + static_cast<std::ptrdiff_t>(count));
    next += static_cast<std::ptrdiff_t>(count);
    return values;
  };
  const auto add = [](Values& x, const Values& y) { std::ranges::transform(x, y, x.begin(), std::plus()); };
  const Values table = take(kVocabulary * d);
  Values x;
  for (const std::uint8_t byte : inputs) x.insert(x.end(), &table[byte * d], &table[byte * d] + d);
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    const Values attention_norm = take(d), in = take(3 * d * d), out = take(d * d);
    add(x, product(attention(product(rms_norm(x, attention_norm), in, d), d, shape.heads, length), out, d));
    const Values mlp_norm = take(d), mlp_in = take(4 * d * d), mlp_out = take(4 * d * d);
    Values mlp = product(rms_norm(x, mlp_norm), mlp_in, d);
    std::ranges::transform(mlp, mlp.begin(), gelu);
    add(x, product(mlp, mlp_out, 4 * d));
  }
  Values transposed_table(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) transposed_table[i % d * kVocabulary + i / d] = table[i];
  return cross_entropy(product(rms_norm(x, take(d)), transposed_table, d), targets);
}

Values numeric_gradient(const std::function<double(const Values&)>& f, Values x) {
  constexpr double kStep = 1e-5;
  Values gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + kStep;
    const double above = f(x);
    x[i] = kept - kStep;
    gradient[i] = (above - f(x)) / (2 * kStep);
    x[i] = kept;
  }
  return gradient;
}

// Values that fp32 has too, so that both sides start from the same.
Values random_values(std::mt19937_64& random, std::size_t count, double spread) {
  std::normal_distribution<double> normal(0, spread);
  Values values(count);
  for (double& value : values) value = static_cast<double>(static_cast<float>(normal(random)));
  return values;
}

std::vector<float> to_floats(const Values& values) {
  std::vector<float> floats(values.size());
  std::ranges::transform(values, floats.begin(), [](double value) { return static_cast<float>(value); });
  return floats;
}

double relative_error(std::span<const float> actual, const Values& expected) {
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(actual[i]) - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return actual.size() == expected.size() ? worst / scale : 1;
}

}  // namespace sluice::trainer::reference
