#pragma once

#include <cstdint>
#include <iosfwd>

namespace sluice::memory {

/// What the kernel reports for the mappings that lie in an address range.
struct ResidentPages {
  std::uint64_t resident_bytes = 0;
  std::uint64_t huge_bytes = 0;  ///< of them, in transparent huge pages
};

/// Adds up the mappings of `smaps` that start in [begin, end).
/// Source: proc_pid_smaps(5).
ResidentPages parse_resident_pages(std::istream& smaps, std::uint64_t begin, std::uint64_t end);

/// The same of this process.
/// Cost: a walk over all of its mappings.
ResidentPages read_resident_pages(std::uint64_t begin, std::uint64_t end);

}  // namespace sluice::memory
