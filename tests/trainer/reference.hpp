#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "trainer/shape.hpp"

/// The trainer's layers again, in double and in plain loops: the truth that they are held to.
namespace sluice::trainer::reference {

using Values = std::vector<double>;

Values rms_norm(const Values& x, const Values& gain);  // [n, d], [d] -> [n, d]
double gelu(double x);
/// With the turn of queries and keys by their position. Shape: [n, 3 width] -> [n, width].
Values attention(const Values& qkv, std::size_t width, std::size_t heads, std::size_t length);
double cross_entropy(const Values& logits, std::span<const std::uint8_t> targets);
Values product(const Values& a, const Values& b, std::size_t inner);  // [m, inner], [inner, n] -> [m, n]

/// The loss of a whole model; its parts' tensors one after the other, the head's table left out (it is tied).
double model_loss(const Shape& shape, const Values& parameters, std::span<const std::uint8_t> inputs,
                  std::span<const std::uint8_t> targets, std::size_t length);

/// The gradient of f at x by central differences.
/// With h = 1e-5 and |f'''| up to 100 it is off by h^2 f'''/6 < 2e-9 and by rounding, 1e-16 |f| / h = 1e-11
/// |f|.
Values numeric_gradient(const std::function<double(const Values&)>& f, Values x);

Values random_values(std::mt19937_64& random, std::size_t count, double spread = 1);
std::vector<float> to_floats(const Values& values);

/// The largest difference, in units of the largest expected value.
double relative_error(std::span<const float> actual, const Values& expected);

/// What fp32 may be off by: 2^-24 a rounding, in a chain of at most 8 sums over at most 64 terms.
inline constexpr double kTolerance = 8 * 64 * 0x1p-24;

}  // namespace sluice::trainer::reference
