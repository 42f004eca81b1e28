#include "engine/numa.hpp"

#include <fmt/format.h>

#include <utility>

#include "memory/drive_tree.hpp"

namespace sluice::engine {

void NumaUse::give_up_memory(const Status& refusal) {
  placement.memory = memory::MemoryPolicy::kFirstTouch;
  placement.memory_nodes.clear();
  refusals.push_back("NUMA: " + refusal.message());
}

void NumaUse::give_up_threads(const Status& refusal) {
  placement.io_nodes.clear();
  placement.io_cpus.clear();
  refusals.push_back("NUMA: " + refusal.message());
}

NumaUse place_near(memory::Topology topology, const std::optional<store::Drives>& drives) {
  NumaUse numa{.topology = std::move(topology), .placement = {}, .refusals = {}};
  if (memory::count_of_mask(numa.topology.nodes) < 2) return numa;
  std::vector<int> drive_nodes;
  if (drives) {
    for (const io::Directory& directory : drives->directories()) {
      // The directory that is open, whatever its path means by now.
      const memory::DrivePlace place = memory::find_drive(fmt::format("/proc/self/fd/{}", directory.fd()));
      const std::vector<int> nodes =
          place.device ? memory::numa_nodes_of(*place.device) : std::vector{memory::kUnknownNode};
      drive_nodes.insert(drive_nodes.end(), nodes.begin(), nodes.end());
    }
  }
  numa.placement = memory::place_on_nodes(numa.topology.nodes, drive_nodes);
  return numa;
}

Result<io::SelectedBackend> open_near(
    const std::function<Result<io::SelectedBackend>(const io::BackendOptions&)>& open,
    io::BackendOptions options, NumaUse& numa) {
  options.cpus.assign(numa.placement.io_cpus.begin(), numa.placement.io_cpus.end());
  Result<io::SelectedBackend> near = open(options);
  if (near.ok() || options.cpus.empty()) return near;
  options.cpus.clear();
  Result<io::SelectedBackend> anywhere = open(options);
  if (anywhere.ok()) numa.give_up_threads(near.status());
  return anywhere;
}

}  // namespace sluice::engine
