#pragma once

#include <cstddef>
#include <span>

namespace sluice::trainer {

/// A row-major view; consecutive rows are `stride` floats apart.
struct Matrix {
  float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;

  std::span<float> row(std::size_t index) const { return {data + index * stride, cols}; }
  /// Rows and columns [first, first + count).
  Matrix rows_from(std::size_t first, std::size_t count) const {
    return {data + first * stride, count, cols, stride};
  }
  Matrix cols_from(std::size_t first, std::size_t count) const { return {data + first, rows, count, stride}; }
};

/// An operand of a product: a matrix, or its transpose without moving a byte.
struct Operand {
  enum class Order : char { kPlain = 'N', kTransposed = 'T' };  // the letters of BLAS

  Operand(Matrix matrix) : stored(matrix) {}  // NOLINT: implicit by design
  Operand(Matrix matrix, Order stored_order) : stored(matrix), order(stored_order) {}

  std::size_t rows() const { return order == Order::kPlain ? stored.rows : stored.cols; }
  std::size_t cols() const { return order == Order::kPlain ? stored.cols : stored.rows; }

  Matrix stored;
  Order order = Order::kPlain;
};

inline Operand transposed(Matrix matrix) { return {matrix, Operand::Order::kTransposed}; }

/// What becomes of the values that a result already has.
enum class Into : char { kOverwrite, kAdd };

/// c = a b, or c += a b.
/// Shape: a [m, k], b [k, n], c [m, n]; other shapes end the program with a message, since only a wrong
/// program has them. Threads: computes on as many as set_threads() says, on one inside for_each(). The same
/// bits for the same shapes and number of threads.
void multiply(Matrix c, Operand a, Operand b, Into into = Into::kOverwrite);

}  // namespace sluice::trainer
