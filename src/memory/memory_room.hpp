#pragma once

#include <cstdint>
#include <string>

#include "memory/cgroup.hpp"

namespace sluice::memory {

/// Memory that can still be taken without swapping or being killed.
struct MemoryRoom {
  std::uint64_t machine_bytes = kNoLimit;    ///< RAM
  std::uint64_t available_bytes = kNoLimit;  ///< of RAM, by the kernel's estimate (MemAvailable)
  CgroupLimits cgroup;

  /// min(available RAM, room in the control group)
  std::uint64_t bytes() const;

  /// The figures behind bytes(): "16 MiB available of 23 GiB RAM; control group: 1 MiB left of 2 MiB
  /// (…/memory.max)".
  std::string to_string() const;
};

/// Reads <root>/proc/meminfo and what read_cgroup_limits(root) reads; what is absent limits nothing.
/// Threads: any.
/// Cost: a few reads of pseudo-files.
MemoryRoom read_memory_room(const std::string& root = "");

}  // namespace sluice::memory
