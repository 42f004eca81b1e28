#include "memory/topology.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "memory/memory_room.hpp"

namespace sluice::memory {
namespace {

using CpuSet = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

CpuSet make_cpu_set() { return CpuSet(hwloc_bitmap_alloc(), &hwloc_bitmap_free); }

// Without changing the caller's binding, which discovery would do for a moment, and without an HWLOC_XMLFILE
// of some other machine, with which binding silently does nothing.
std::shared_ptr<hwloc_topology> load_machine() {
  hwloc_topology* raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  std::shared_ptr<hwloc_topology> machine(raw, &hwloc_topology_destroy);
  const unsigned long flags = HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
  if (hwloc_topology_set_flags(raw, flags) != 0 || hwloc_topology_load(raw) != 0) return nullptr;
  return machine;
}

}  // namespace

std::uint32_t Topology::threads() const {
  const double count = static_cast<double>(cpus.size());
  return static_cast<std::uint32_t>(std::max(1.0, std::min(count, std::ceil(cpu_quota))));
}

Result<Topology> read_topology() {
  Topology topology;
  topology.machine = load_machine();
  const CpuSet allowed = make_cpu_set();
  if (topology.machine == nullptr || allowed == nullptr ||
      hwloc_get_cpubind(topology.machine.get(), allowed.get(), HWLOC_CPUBIND_THREAD) != 0)
    return Status(Code::kUnavailable, "hwloc: reading the machine and this thread's affinity mask", errno);

  for (int cpu = hwloc_bitmap_first(allowed.get()); cpu >= 0; cpu = hwloc_bitmap_next(allowed.get(), cpu))
    topology.cpus.push_back(static_cast<std::uint32_t>(cpu));
  const int machine_cpus = hwloc_get_nbobjs_by_type(topology.machine.get(), HWLOC_OBJ_PU);
  if (topology.cpus.size() < static_cast<std::size_t>(machine_cpus))
    topology.notes.push_back(fmt::format("affinity mask: {} of {} CPUs", topology.cpus.size(), machine_cpus));

  const CpuSet nodes = make_cpu_set();
  hwloc_cpuset_to_nodeset(topology.machine.get(), allowed.get(), nodes.get());
  topology.numa_nodes = static_cast<std::uint32_t>(std::max(1, hwloc_bitmap_weight(nodes.get())));

  const MemoryRoom room = read_memory_room();
  topology.memory_bytes = std::min(room.machine_bytes, room.cgroup.memory_bytes);
  if (room.cgroup.memory_bytes < room.machine_bytes)
    topology.notes.push_back(fmt::format("control group: {} of {} bytes of memory ({})",
                                         room.cgroup.memory_bytes, room.machine_bytes,
                                         room.cgroup.memory_file));
  topology.cpu_quota = room.cgroup.cpu_quota;
  if (topology.cpu_quota < static_cast<double>(topology.cpus.size()))
    topology.notes.push_back(fmt::format("control group: {:.2f} CPUs' time for {} CPUs", topology.cpu_quota,
                                         topology.cpus.size()));
  return topology;
}

Status bind_this_thread(const Topology& topology, std::span<const std::uint32_t> cpus) {
  if (cpus.empty()) return Status(Code::kInvalidArgument, "cpus: none to bind a thread to");
  const CpuSet set = make_cpu_set();
  for (const std::uint32_t cpu : cpus) {
    if (!std::binary_search(topology.cpus.begin(), topology.cpus.end(), cpu))
      return Status(Code::kInvalidArgument, fmt::format("cpus: {} is not one of the affinity mask's {} CPUs",
                                                        cpu, topology.cpus.size()));
    hwloc_bitmap_set(set.get(), cpu);
  }
  if (hwloc_set_cpubind(topology.machine.get(), set.get(), HWLOC_CPUBIND_THREAD) != 0)
    return Status(Code::kUnavailable,
                  fmt::format("binding a thread to {} CPUs from {} on", cpus.size(), cpus[0]), errno);
  return {};
}

}  // namespace sluice::memory
