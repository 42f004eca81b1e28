#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/cgroup.hpp"
#include "sluice/status.hpp"

struct hwloc_topology;

namespace sluice::memory {

/// What this process may use of the machine.
/// Invariant: cpus is ascending and not empty; 1 <= threads() <= cpus.size(); numa_nodes >= 1.
struct Topology {
  std::vector<std::uint32_t> cpus;  ///< operating system's numbers in the calling thread's affinity mask
  double cpu_quota = kNoQuota;      ///< CPUs' worth of time that the control group grants
  std::uint32_t numa_nodes = 1;     ///< that the cpus belong to
  std::uint64_t memory_bytes = 0;   ///< min(RAM, the control group's limit)
  std::vector<std::string>
      notes;  ///< each limit that is tighter than the machine, in words, for stats and doctor
  std::shared_ptr<hwloc_topology> machine;  ///< what bind_this_thread() needs

  /// Threads that can run at once: min(cpus, the quota rounded up).
  std::uint32_t threads() const;
};

/// Errors: kUnavailable when hwloc cannot read the machine.
/// Threads: any.
/// Cost: milliseconds; read it once.
Result<Topology> read_topology();

/// Binds the calling thread to `cpus`, a part of topology.cpus.
/// Requires: a thread that the engine started; the trainer's threads keep their own masks.
/// Errors: kInvalidArgument for an empty list or a CPU outside topology.cpus; kUnavailable when the kernel
/// refuses.
/// Threads: any, at once on one topology.
Status bind_this_thread(const Topology& topology, std::span<const std::uint32_t> cpus);

}  // namespace sluice::memory
