#include "memory/topology.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "memory/memory_room.hpp"

namespace sluice::memory {
namespace {

using BitSet = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

BitSet make_bit_set() { return BitSet(hwloc_bitmap_alloc(), &hwloc_bitmap_free); }

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
  const BitSet allowed = make_bit_set();
  if (topology.machine == nullptr || allowed == nullptr ||
      hwloc_get_cpubind(topology.machine.get(), allowed.get(), HWLOC_CPUBIND_THREAD) != 0)
    return Status(Code::kUnavailable, "hwloc: reading the machine and this thread's affinity mask", errno);

  for (int cpu = hwloc_bitmap_first(allowed.get()); cpu >= 0; cpu = hwloc_bitmap_next(allowed.get(), cpu))
    topology.cpus.push_back(static_cast<std::uint32_t>(cpu));
  const int machine_cpus = hwloc_get_nbobjs_by_type(topology.machine.get(), HWLOC_OBJ_PU);
  if (topology.cpus.size() < static_cast<std::size_t>(machine_cpus))
    topology.notes.push_back(fmt::format("affinity mask: {} of {} CPUs", topology.cpus.size(), machine_cpus));

  topology.nodes = read_nodes(topology.machine.get(), topology.cpus);

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

std::vector<NumaNode> read_nodes(hwloc_topology* machine, std::span<const std::uint32_t> cpus) {
  std::vector<NumaNode> nodes;
  std::vector<std::uint32_t> left(cpus.begin(), cpus.end());
  hwloc_obj* object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    NumaNode node{
        .number = object->os_index, .cpus = {}, .memory_bytes = object->attr->numanode.local_memory};
    std::erase_if(left, [&](std::uint32_t cpu) {
      if (hwloc_bitmap_isset(object->cpuset, cpu) == 0) return false;
      node.cpus.push_back(cpu);
      return true;
    });
    nodes.push_back(std::move(node));
  }
  std::ranges::sort(nodes, {}, &NumaNode::number);
  return nodes;
}

Status bind_thread(const Topology& topology, pthread_t thread, std::span<const std::uint32_t> cpus) {
  if (cpus.empty()) return Status(Code::kInvalidArgument, "cpus: none to bind a thread to");
  const BitSet set = make_bit_set();
  for (const std::uint32_t cpu : cpus) {
    if (!std::ranges::binary_search(topology.cpus, cpu))
      return Status(Code::kInvalidArgument, fmt::format("cpus: {} is not one of the affinity mask's {} CPUs",
                                                        cpu, topology.cpus.size()));
    hwloc_bitmap_set(set.get(), cpu);
  }
  if (hwloc_set_thread_cpubind(topology.machine.get(), thread, set.get(), 0) != 0)
    return Status(Code::kUnavailable,
                  fmt::format("binding a thread to {} CPUs from {} on", cpus.size(), cpus[0]), errno);
  return {};
}

Status bind_memory(const Topology& topology, std::span<std::byte> memory, MemoryPolicy policy,
                   std::span<const std::uint32_t> nodes) {
  if (policy == MemoryPolicy::kFirstTouch) return {};
  const BitSet set = make_bit_set();
  for (const std::uint32_t node : nodes) {
    if (std::ranges::find(topology.nodes, node, &NumaNode::number) == topology.nodes.end())
      return Status(Code::kInvalidArgument, fmt::format("nodes: {} is not one of the machine's {} NUMA nodes",
                                                        node, topology.nodes.size()));
    hwloc_bitmap_set(set.get(), node);
  }
  // Without HWLOC_MEMBIND_STRICT, hwloc's binding is Linux's preference: a full node leads to others.
  const auto kind = policy == MemoryPolicy::kInterleaved ? HWLOC_MEMBIND_INTERLEAVE : HWLOC_MEMBIND_BIND;
  if (hwloc_set_area_membind(topology.machine.get(), memory.data(), memory.size(), set.get(), kind,
                             HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_NOCPUBIND) != 0)
    return Status(Code::kUnavailable, fmt::format("binding memory to NUMA nodes {}", fmt::join(nodes, ",")),
                  errno);
  return {};
}

}  // namespace sluice::memory
