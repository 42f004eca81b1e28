// Every kernel beside a loop that moves the same bytes, in and out of cache, in one process.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "arena.hpp"
#include "kernels/isa.hpp"

namespace sluice::bench {
void add_adamw_benchmarks();
void add_gradient_benchmarks();
void add_hash_benchmarks();
}  // namespace sluice::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("isa", std::string(sluice::kernels::isa_name(sluice::kernels::isa_in_use())));
  sluice::bench::add_adamw_benchmarks();
  sluice::bench::add_gradient_benchmarks();
  sluice::bench::add_hash_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  std::fprintf(stderr, "on huge pages: %.0f %%\n", 100 * sluice::bench::huge_page_share());
  benchmark::Shutdown();
  return 0;
}
