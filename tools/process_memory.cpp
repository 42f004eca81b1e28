#include "tools/process_memory.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

namespace sluice::tools {

ProcessMemory read_process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const auto kibibytes_of = [&line](const char* field, std::uint64_t& bytes) {
      if (line.rfind(field, 0) == 0)
        bytes = std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) << 10;
    };
    kibibytes_of("VmHWM:", memory.peak_rss_bytes);
    kibibytes_of("HugetlbPages:", memory.hugetlb_bytes);
  }
  return memory;
}

}  // namespace sluice::tools
