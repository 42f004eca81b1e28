#include "support/machine.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <string>

#include "kernels/isa.hpp"
#include "support/fma_probe.hpp"

namespace sluice::bench {
namespace {

// "model name	: Some CPU"; architectures whose kernel does not tell have "unknown".
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != line.npos)
      return line.substr(colon + 2);
  }
  return "unknown";
}

std::string kernel_release() {
  utsname names{};
  return uname(&names) == 0 ? names.release : "unknown";
}

}  // namespace

void add_machine_context(const Workplace& place) {
  benchmark::AddCustomContext("cpu", cpu_name());
  benchmark::AddCustomContext("isa", std::string(kernels::isa_name(kernels::isa_in_use())));
  benchmark::AddCustomContext("kernel", kernel_release());
  benchmark::AddCustomContext("pages", place.arena.backing());
  benchmark::AddCustomContext("threads", std::to_string(place.threads));
  benchmark::AddCustomContext("fma_scaling_at_start",
                              fmt::format("{:.2f}", fma_scaling(place.threads, place.probe_milliseconds())));
}

}  // namespace sluice::bench
