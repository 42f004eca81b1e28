// Kernels that are no update beside loops that move the same bytes, in and out of cache, in one process.
#include "support/run.hpp"

namespace sluice::bench {
void add_gradient_benchmarks(const Workplace& place);
void add_hash_benchmarks(const Workplace& place);
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  return run(argc, argv, {&add_gradient_benchmarks, &add_hash_benchmarks});
}
