// The library's block I/O beside bare loops over the kernel's calls, and beside a file a tensor, in one process.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/open_backend.hpp"
#include "tools/block_device.hpp"
#include "tools/sizes.hpp"
#include "workplace.hpp"

namespace sluice::bench {

void add_overhead_benchmarks(const Workplace& place);
void add_throughput_benchmarks(const Workplace& place);
void add_small_tensor_benchmarks(const Workplace& place);

namespace {

// Takes --dir=, --size= and --seconds=. Returns: whether all else was taken before.
bool read_options(int argc, char** argv, Workplace& place) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string value(word.substr(std::min(word.size(), word.find('=') + 1)));
    if (word.starts_with("--dir=")) {
      place.directory = value;
    } else if (word.starts_with("--size=") && tools::parse_size(value).ok()) {
      place.size_bytes = tools::parse_size(value).value();
    } else if (word.starts_with("--seconds=") && std::atof(value.c_str()) > 0) {
      place.seconds = std::atof(value.c_str());
    } else {
      std::fprintf(stderr, "not understood: %s\n", argv[i]);
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice;
  benchmark::Initialize(&argc, argv);
  bench::Workplace place;
  if (!bench::read_options(argc, argv, place)) return 2;
  const auto device = memory::find_drive(place.directory).device;
  benchmark::AddCustomContext("drive",
                              device ? tools::describe_device(*device) : "no block device of its own");
  if (const auto selected = io::open_backend({}); selected.ok()) {
    benchmark::AddCustomContext("backend", std::string(io::backend_name(selected->kind)));
    benchmark::AddCustomContext("ring", selected->backend->in_use().ring);
  }
  bench::add_overhead_benchmarks(place);
  bench::add_throughput_benchmarks(place);
  bench::add_small_tensor_benchmarks(place);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
