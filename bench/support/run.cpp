#include "support/run.hpp"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <string_view>

#include "support/fma_probe.hpp"
#include "support/machine.hpp"

namespace sluice::bench {

int run(int argc, char** argv, std::initializer_list<AddBenchmarks> parts) {
  benchmark::Initialize(&argc, argv);
  Effort effort = Effort::kMeasure;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--small") {
      std::fprintf(stderr, "not understood: %s\n", argv[i]);
      return 2;
    }
    effort = Effort::kSmall;
  }
  const Result<Workplace> place = Workplace::create(effort);
  if (!place.ok()) {
    std::fprintf(stderr, "%s\n", place.status().to_string().c_str());
    return 1;
  }
  add_machine_context(*place);
  for (const AddBenchmarks add : parts) add(*place);
  benchmark::RunSpecifiedBenchmarks();
  std::fprintf(stderr, "fma_scaling at end: %.2f of %zu\n",
               fma_scaling(place->threads, place->probe_milliseconds()), place->threads);
  benchmark::Shutdown();
  return 0;
}

}  // namespace sluice::bench
