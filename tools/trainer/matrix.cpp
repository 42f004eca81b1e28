#include "trainer/matrix.hpp"

#include <dnnl.h>
#include <omp.h>

#include <cstdio>
#include <cstdlib>

#include "trainer/parallel.hpp"

namespace sluice::trainer {
namespace {

[[noreturn]] void end_for(Matrix c, const Operand& a, const Operand& b, int status) {
  std::fprintf(stderr, "multiply: [%zu, %zu] = [%zu, %zu] [%zu, %zu]: status %d of dnnl_sgemm\n", c.rows,
               c.cols, a.rows(), a.cols(), b.rows(), b.cols(), status);
  std::abort();
}

// oneDNN would spread the product over OpenMP threads, which spin while they wait: for_each() does it
// instead.
void multiply_on_this_thread(Matrix c, const Operand& a, const Operand& b, Into into) {
  omp_set_num_threads(1);
  const auto dim = [](std::size_t count) { return static_cast<dnnl_dim_t>(count); };
  const float keep = into == Into::kAdd ? 1.0F : 0.0F;
  const auto status = dnnl_sgemm(static_cast<char>(a.order), static_cast<char>(b.order), dim(c.rows),
                                 dim(c.cols), dim(a.cols()), 1.0F, a.stored.data, dim(a.stored.stride),
                                 b.stored.data, dim(b.stored.stride), keep, c.data, dim(c.stride));
  if (status != dnnl_success) end_for(c, a, b, static_cast<int>(status));
}

Operand rows_of(const Operand& a, std::size_t first, std::size_t count) {
  return a.order == Operand::Order::kPlain ? Operand(a.stored.rows_from(first, count))
                                           : transposed(a.stored.cols_from(first, count));
}

Operand cols_of(const Operand& b, std::size_t first, std::size_t count) {
  return b.order == Operand::Order::kPlain ? Operand(b.stored.cols_from(first, count))
                                           : transposed(b.stored.rows_from(first, count));
}

}  // namespace

void multiply(Matrix c, Operand a, Operand b, Into into) {
  if (a.rows() != c.rows || a.cols() != b.rows() || b.cols() != c.cols)
    end_for(c, a, b, dnnl_invalid_arguments);
  const std::size_t parts = threads();
  const bool by_rows = c.rows >= c.cols;
  const std::size_t length = by_rows ? c.rows : c.cols;
  for_each(parts, [&](std::size_t part, std::size_t) {
    const std::size_t first = length * part / parts, count = length * (part + 1) / parts - first;
    if (count == 0) return;
    if (by_rows) {
      multiply_on_this_thread(c.rows_from(first, count), rows_of(a, first, count), b, into);
    } else {
      multiply_on_this_thread(c.cols_from(first, count), a, cols_of(b, first, count), into);
    }
  });
}

}  // namespace sluice::trainer
