#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::memory {

/// A NUMA node, as far as this process may use it.
/// Invariant: a CPU is in one node's list only.
struct NumaNode {
  std::uint32_t number = 0;         ///< the operating system's
  std::vector<std::uint32_t> cpus;  ///< inside the affinity mask, ascending; perhaps none
  std::uint64_t memory_bytes = 0;   ///< perhaps none
};

enum class MemoryPolicy : std::uint8_t {
  kFirstTouch,   ///< the kernel's own: where the thread runs that touches a page first
  kPreferred,    ///< on one node while it has room, then elsewhere
  kInterleaved,  ///< page by page over the nodes
};

/// Where to put an arena and the threads that serve the drives.
/// Invariant: nodes are ascending; one for kPreferred, two or more for kInterleaved, none for kFirstTouch;
/// io_nodes is empty exactly when io_cpus is.
struct Placement {
  MemoryPolicy memory = MemoryPolicy::kFirstTouch;
  std::vector<std::uint32_t> memory_nodes;
  std::vector<std::uint32_t> io_nodes;  ///< of io_cpus
  std::vector<std::uint32_t> io_cpus;   ///< for the control loop and I/O threads; empty: the whole mask
};

/// Nodes that have a CPU in the mask.
std::uint32_t count_of_mask(std::span<const NumaNode> nodes);

/// Memory goes to the node of the drives, or interleaved over the nodes of several; so do the threads that serve
/// them. Where a drive's node is unknown (-1) or has no CPU in the mask, memory is interleaved over the mask's
/// nodes and threads stay free; so it is for a node without memory, but for the threads. A mask of one node
/// leaves everything as it is. Computing threads are never narrowed: the update needs every CPU.
Placement place_on_nodes(std::span<const NumaNode> nodes, std::span<const int> drive_nodes);

/// "1 node"; "node 1 of 2: arena and loop"; "arena interleaved over nodes 0,1 of 2"; "2 nodes, nothing bound".
std::string describe(const Placement& placement, std::span<const NumaNode> nodes);

}  // namespace sluice::memory
