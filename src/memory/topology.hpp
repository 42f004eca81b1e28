#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/cgroup.hpp"
#include "memory/placement.hpp"
#include "sluice/status.hpp"

struct hwloc_topology;

namespace sluice::memory {

/// What this process may use of the machine.
/// Invariant: cpus is ascending and not empty; 1 <= threads() <= cpus.size().
struct Topology {
  std::vector<std::uint32_t> cpus;  ///< operating system's numbers in the calling thread's affinity mask
  double cpu_quota = kNoQuota;      ///< CPUs' worth of time that the control group grants
  std::vector<NumaNode> nodes;      ///< all that the machine shows
  std::uint64_t memory_bytes = 0;   ///< min(RAM, the control group's limit)
  std::vector<std::string>
      notes;  ///< each limit that is tighter than the machine, in words, for stats and doctor
  std::shared_ptr<hwloc_topology> machine;  ///< what binding needs

  /// Threads that can run at once: min(cpus, the quota rounded up).
  std::uint32_t threads() const;
};

/// Errors: kUnavailable when hwloc cannot read the machine.
/// Threads: any.
/// Cost: milliseconds; read it once.
Result<Topology> read_topology();

/// The nodes of a machine, by their number, with those of `cpus` that are theirs. A CPU that is local to several
/// nodes (memory of another kind beside it) belongs to the first.
std::vector<NumaNode> read_nodes(hwloc_topology* machine, std::span<const std::uint32_t> cpus);

/// Lets a thread run on `cpus` alone, a part of topology.cpus.
/// Requires: a thread that the library started; the trainer's threads keep their own masks.
/// Errors: kInvalidArgument for an empty list or a CPU outside topology.cpus; kUnavailable when the kernel
/// refuses.
/// Threads: any, at once on one topology.
Status bind_thread(const Topology& topology, pthread_t thread, std::span<const std::uint32_t> cpus);

/// Has the pages of `memory` that are not there yet come from `nodes`, by `policy`; with kFirstTouch nothing is
/// called. Requires: whole pages.
/// Errors: kInvalidArgument for a node that topology.nodes lacks; kUnavailable when the kernel refuses.
Status bind_memory(const Topology& topology, std::span<std::byte> memory, MemoryPolicy policy,
                   std::span<const std::uint32_t> nodes);

}  // namespace sluice::memory
