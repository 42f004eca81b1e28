#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/compute.hpp"
#include "engine/drive_loads.hpp"
#include "engine/registry.hpp"
#include "io/place.hpp"
#include "io/queue.hpp"
#include "plan/host_partition.hpp"
#include "sluice/device.hpp"
#include "store/layout.hpp"
#include "store/store.hpp"

namespace sluice::engine {

/// What happens next, on the loop, when something has finished or failed.
using Done = std::function<void(Status)>;

using store::kMaxPlanes;

/// Where a chunk's record is and what it must hash to.
/// Invariant: once seal() has filled the chunk `current` or `resident` is set. Both: `current` is the slot that
/// the last commit has written the record in memory to.
struct Chunk {
  std::optional<io::Place> current;                   ///< its slot
  std::byte* resident = nullptr;                      ///< its record in the host arena
  bool changed = false;                               ///< the record in memory is not the one in `current`
  std::array<std::uint64_t, kMaxPlanes> checksums{};  ///< of the planes in `current`
  std::uint64_t overflowed = 0;  ///< finite masters that showed an infinite weight after the last update
  std::uint32_t spill_slot = 0;  ///< of its gradient
};

/// Written by the loop, read by any thread.
struct Counters {
  using Counter = std::atomic<std::uint64_t>;
  Counter steps{0}, skipped_steps{0}, fetches{0}, demand_fetches{0}, weights_overflowed{0};
  Counter early_updates{0}, redone_updates{0}, wrong_guesses{0};
  Counter commits{0}, failed_commits{0}, steps_since_commit{0};
  Counter commit_state_bytes_written{0}, commit_record_bytes_written{0};
  Counter commit_wait_ns{0}, commit_ns{0}, nvme_reserved_bytes{0};
  Counter weight_bytes_read{0}, record_bytes_read{0}, record_bytes_written{0};
  Counter gradient_bytes_read{0}, gradient_bytes_written{0}, device_bytes_in{0}, io_retries{0};
  Counter fetch_wait_ns{0}, gradient_wait_ns{0}, step_ns{0};
};

/// What the parts of one engine share. After seal() it belongs to the loop; the layout, the partition and
/// what the registry holds but step counts and optimizer numbers stay as they are.
struct State {
  Registry registry;
  store::ElementLayout layout;
  plan::HostPartition partition;
  std::vector<Chunk> chunks;
  std::uint64_t step = 0;  ///< finished steps of this state, those before a recovery included
  std::uint64_t seed = 0;  ///< that first values are keyed by
  Counters counters;

  store::Store* store = nullptr;  ///< null without an NVMe tier
  io::Queue* queue = nullptr;
  DriveLoads* loads = nullptr;  ///< null without an NVMe tier
  Compute* compute = nullptr;
  DeviceSession* device = nullptr;

  const store::ChunkLayout& chunk_layout(std::uint32_t chunk) const { return layout.chunks()[chunk]; }
  const store::ClassLayout& class_of(std::uint32_t chunk) const {
    return layout.classes()[chunk_layout(chunk).class_index];
  }
  /// Unpadded bytes of one plane of a chunk.
  std::uint64_t plane_bytes(std::uint32_t chunk, std::size_t plane) const {
    return std::uint64_t{chunk_layout(chunk).elements} * dtype_bytes(class_of(chunk).planes[plane].dtype);
  }
  bool stepped(std::uint32_t chunk) const { return class_of(chunk).gradient.has_value(); }

  /// "'a'" or "'a' to 'b'": whose elements a chunk holds, for messages.
  std::string describe(std::uint32_t chunk) const;
};

/// Bytes from host memory to the place where a direct transfer may put them: planes start on this grid.
std::uint64_t round_up(std::uint64_t bytes, std::uint64_t grid);

}  // namespace sluice::engine
