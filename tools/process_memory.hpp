#pragma once

#include <cstdint>

namespace sluice::tools {

/// What the kernel counts for this process.
/// Source: proc(5), /proc/pid/status.
struct ProcessMemory {
  std::uint64_t peak_rss_bytes = 0;  ///< VmHWM; pages of the hugetlb pool are not in it
  std::uint64_t hugetlb_bytes = 0;   ///< HugetlbPages, of this moment
};

/// Zeros where /proc cannot be read.
ProcessMemory read_process_memory();

}  // namespace sluice::tools
