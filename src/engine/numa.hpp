#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/open_backend.hpp"
#include "memory/placement.hpp"
#include "memory/topology.hpp"
#include "sluice/status.hpp"
#include "store/drives.hpp"

namespace sluice::engine {

/// Where the machine's NUMA nodes have an engine's arena and threads go.
struct NumaUse {
  memory::Topology topology;
  memory::Placement placement;  ///< what is bound, or is to be
  std::vector<std::string> refusals;

  std::string text() const { return memory::describe(placement, topology.nodes); }
  /// What the kernel refused is in use no more.
  void give_up_memory(const Status& refusal);
  void give_up_threads(const Status& refusal);
};

/// On a machine of one node nothing is looked at. Without drives the arena is interleaved.
NumaUse place_near(memory::Topology topology, const std::optional<store::Drives>& drives);

/// The backend with its workers near the drives, or anywhere where that is refused.
Result<io::SelectedBackend> open_near(
    const std::function<Result<io::SelectedBackend>(const io::BackendOptions&)>& open,
    io::BackendOptions options, NumaUse& numa);

}  // namespace sluice::engine
