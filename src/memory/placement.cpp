#include "memory/placement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sluice::memory {
namespace {

void put_memory_on(std::span<const NumaNode* const> nodes, Placement& placement) {
  for (const NumaNode* node : nodes)
    if (node->memory_bytes > 0) placement.memory_nodes.push_back(node->number);
}

}  // namespace

std::uint32_t count_of_mask(std::span<const NumaNode> nodes) {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(nodes, [](const NumaNode& node) { return !node.cpus.empty(); }));
}

Placement place_on_nodes(std::span<const NumaNode> nodes, std::span<const int> drive_nodes) {
  Placement placement;
  std::vector<const NumaNode*> of_mask, of_drives;
  for (const NumaNode& node : nodes) {
    if (node.cpus.empty()) continue;
    of_mask.push_back(&node);
    if (std::ranges::find(drive_nodes, static_cast<int>(node.number)) != drive_nodes.end())
      of_drives.push_back(&node);
  }
  if (of_mask.size() < 2) return placement;
  const bool all_known = !drive_nodes.empty() && std::ranges::all_of(drive_nodes, [&](int drive_node) {
    return std::ranges::any_of(
        of_drives, [&](const NumaNode* node) { return static_cast<int>(node->number) == drive_node; });
  });
  const bool narrower = all_known && of_drives.size() < of_mask.size();
  if (narrower) {
    for (const NumaNode* node : of_drives) {
      placement.io_nodes.push_back(node->number);
      placement.io_cpus.insert(placement.io_cpus.end(), node->cpus.begin(), node->cpus.end());
    }
    std::ranges::sort(placement.io_nodes);
    std::ranges::sort(placement.io_cpus);
    put_memory_on(of_drives, placement);
  }
  if (placement.memory_nodes.empty()) {
    put_memory_on(of_mask, placement);
    // One node's alone is what first touch gives.
    if (placement.memory_nodes.size() < 2) placement.memory_nodes.clear();
  }
  std::ranges::sort(placement.memory_nodes);
  if (!placement.memory_nodes.empty())
    placement.memory =
        placement.memory_nodes.size() == 1 ? MemoryPolicy::kPreferred : MemoryPolicy::kInterleaved;
  return placement;
}

std::string describe(const Placement& placement, std::span<const NumaNode> nodes) {
  const std::uint32_t count = count_of_mask(nodes);
  if (count < 2) return "1 node";
  const auto of_nodes = [&](const std::vector<std::uint32_t>& numbers) {
    return fmt::format("node{} {} of {}", numbers.size() == 1 ? "" : "s", fmt::join(numbers, ","), count);
  };
  const bool arena = placement.memory != MemoryPolicy::kFirstTouch;
  const bool loop = !placement.io_nodes.empty();
  if (!arena && !loop) return fmt::format("{} nodes, nothing bound", count);
  if (!arena) return of_nodes(placement.io_nodes) + ": loop";
  const bool interleaved = placement.memory == MemoryPolicy::kInterleaved;
  if (!interleaved && placement.memory_nodes == placement.io_nodes)
    return of_nodes(placement.io_nodes) + ": arena and loop";
  const std::string text = interleaved ? "arena interleaved over " + of_nodes(placement.memory_nodes)
                                       : of_nodes(placement.memory_nodes) + ": arena";
  if (!loop) return text;
  return text + "; loop on " + of_nodes(placement.io_nodes);
}

}  // namespace sluice::memory
