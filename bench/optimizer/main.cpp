// Every update rule, policy and gradient plane beside a loop that moves the same bytes, in one process.
#include "support/run.hpp"

namespace sluice::bench {
void add_update_benchmarks(const Workplace& place);
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  return run(argc, argv, {&add_update_benchmarks});
}
