#include "trainer/matrix.hpp"

#include <cstdio>
#include <cstdlib>

#include <dnnl.h>

namespace sluice::trainer {

void multiply(Matrix c, Operand a, Operand b, Into into) {
  const bool fits = a.rows() == c.rows && a.cols() == b.rows() && b.cols() == c.cols;
  const auto dim = [](std::size_t count) { return static_cast<dnnl_dim_t>(count); };
  const auto status =
      fits ? dnnl_sgemm(static_cast<char>(a.order), static_cast<char>(b.order), dim(c.rows), dim(c.cols),
                        dim(a.cols()), 1.0F, a.stored.data, dim(a.stored.stride), b.stored.data,
                        dim(b.stored.stride), into == Into::kAdd ? 1.0F : 0.0F, c.data, dim(c.stride))
           : dnnl_invalid_arguments;
  if (status == dnnl_success) return;
  std::fprintf(stderr, "multiply: [%zu, %zu] = [%zu, %zu] [%zu, %zu] gives dnnl_sgemm status %d\n", c.rows,
               c.cols, a.rows(), a.cols(), b.rows(), b.cols(), static_cast<int>(status));
  std::abort();
}

}  // namespace sluice::trainer
