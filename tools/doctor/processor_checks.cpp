#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/isa.hpp"
#include "memory/drive_tree.hpp"
#include "memory/topology.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

Check check_cpus(const memory::Topology& topology) {
  const bool whole = topology.threads() == topology.cpus.size();
  std::string detail = fmt::format("{} in the affinity mask ({}), {} threads at once", topology.cpus.size(),
                                   fmt::join(topology.cpus, ","), topology.threads());
  for (const std::string& note : topology.notes) detail += "; " + note;
  return {"CPUs", whole ? CheckStatus::kOk : CheckStatus::kDegraded, detail,
          whole ? "" : "raise the control group's CPU quota, or narrow the affinity mask to it"};
}

Check check_isa() {
  const kernels::Isa isa = kernels::isa_in_use();
  std::vector<std::string_view> names;
  for (const kernels::Isa other : kernels::isas_available()) names.push_back(kernels::isa_name(other));
  const bool ok = kernels::fuses_multiply_add(isa);
  return {"instruction sets", ok ? CheckStatus::kOk : CheckStatus::kDegraded,
          fmt::format("kernels run on {}; usable: {}", kernels::isa_name(isa), fmt::join(names, ", ")),
          ok ? "" : "a CPU (or a virtual machine's CPU model) with AVX2 or AVX-512"};
}

}  // namespace

Check judge_numa(std::span<const memory::NumaNode> nodes, const std::vector<std::string>& directories,
                 const std::vector<std::vector<int>>& drive_nodes) {
  Findings findings;
  std::vector<int> all;
  for (const std::vector<int>& of_one : drive_nodes) all.insert(all.end(), of_one.begin(), of_one.end());
  findings.add(memory::describe(memory::place_on_nodes(nodes, all), nodes));
  const bool several = nodes.size() > 1;
  if (several) {
    for (const memory::NumaNode& node : nodes)
      findings.add(fmt::format("node {}: {} of the mask's CPUs, {}", node.number, node.cpus.size(),
                               size_text(node.memory_bytes)));
  }
  for (std::size_t i = 0; i < directories.size(); ++i) {
    for (const int drive_node : drive_nodes[i]) {
      // Nodes that a cpuset shuts out are not even shown.
      const bool covered =
          drive_node == memory::kUnknownNode || std::ranges::any_of(nodes, [&](const memory::NumaNode& node) {
            return static_cast<int>(node.number) == drive_node && !node.cpus.empty();
          });
      const std::string text = drive_node == memory::kUnknownNode
                                   ? directories[i] + ": its drive's node is not known"
                                   : fmt::format("{}: its drive is at node {}", directories[i], drive_node);
      if (!covered) {
        findings.add(text + ", outside the affinity mask",
                     fmt::format("let the process run at its drive: numactl --cpunodebind={0} "
                                 "--preferred={0}, or a mask with CPUs of node {0}",
                                 drive_node));
      } else if (several) {
        findings.add(text);
      }
    }
  }
  return findings.check("NUMA");
}

std::vector<Check> check_processors(const Machine& machine, const std::vector<std::string>& directories) {
  std::vector<Check> checks;
  const auto topology = memory::read_topology();
  if (topology.ok()) {
    checks.push_back(check_cpus(*topology));
    std::vector<std::vector<int>> drive_nodes;
    for (const std::string& directory : directories) {
      const memory::DrivePlace place = memory::find_drive(directory, machine.root);
      drive_nodes.push_back(place.device ? memory::numa_nodes_of(*place.device)
                                         : std::vector{memory::kUnknownNode});
    }
    checks.push_back(judge_numa(topology->nodes, directories, drive_nodes));
  } else {
    checks.push_back({"CPUs", CheckStatus::kMissing, topology.status().message(), "mount /sys and /proc"});
  }
  checks.push_back(check_isa());
  return checks;
}

}  // namespace sluice::tools
