#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/place.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"
#include "store/catalog.hpp"
#include "store/layout.hpp"
#include "store/slots.hpp"
#include "store/superblock.hpp"

namespace sluice::store {

struct StoreOptions {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint64_t store_id = 0;          ///< the same on all ranks of a run, different from other runs'
  std::uint64_t generation = 0;        ///< greater than that of the store that this one is made from
  std::uint64_t parent_store_id = 0;   ///< of that store; 0: made from none, as a scratch store always is
  std::uint32_t keep_commits = 0;      ///< 0: scratch
  std::uint64_t record_bytes_max = 0;  ///< of a commit record; unused in a scratch store
  Undo undo = Undo::kOn;
  std::uint32_t chunk_elements = 0;  ///< that `chunks` were laid out with
  std::uint32_t grid_bytes = 4096;   ///< that `chunks` were laid out on; see Drives::grid()
  std::span<const ChunkLayout> chunks = {};
  std::span<const std::uint32_t> stored_chunks =
      {};  ///< that live on NVMe, each once, in the order of the step; with commits: all
  std::span<const StoredParameter> parameters = {};  ///< for the catalog; unused in a scratch store
  std::span<const StoredAlias> aliases = {};
  std::span<const double> drive_weights = {};  ///< see SlotOptions
  Spares spares = Spares::kNone;               ///< kSome: where drives and budget have room
  std::uint64_t spilled_gradient_slots = 0;
  std::uint64_t spilled_gradient_bytes = 0;  ///< of one such slot, on the grid
  std::uint64_t nvme_budget_bytes = 0;       ///< 0: what is needed
  std::uint64_t nvme_bytes_in_use = 0;  ///< by a store that this one is made from and that still is there
};

/// What the containers of a new store hold and where: superblock, catalog, places of commit records, slots,
/// one after the other, each from the grid on.
struct ContainerPlan {
  Superblock superblock;           ///< of drive 0, without a volume id
  std::vector<std::byte> catalog;  ///< encoded; empty in a scratch store
  SlotTable slots;
};

/// Errors: kInvalidArgument for options out of their range; kResourceExhausted for what no file can hold.
Result<ContainerPlan> plan_containers(const StoreOptions& options, std::uint32_t drives);

/// Where each slot for a spilled gradient lies in its drive's file of them: dealt by weight, as records are.
/// Requires: spilled_gradient_slots * spilled_gradient_bytes < 2^64.
std::vector<io::Place> gradient_places(const StoreOptions& options, std::uint32_t drives);

/// Containers and gradients of all drives; 2^64 - 1 if that overflows. Requires: options that
/// plan_containers() takes.
std::uint64_t needed_bytes(const StoreOptions& options, std::uint32_t drives);

/// Whether the budget holds a new store beside what is in use.
/// Errors: kResourceExhausted with the arithmetic and the smallest budget that would do.
Status check_budget(const StoreOptions& options, std::uint32_t drives);

/// Whether the budget holds containers that are there and have these bytes, and what comes beside them.
/// Errors: as check_budget().
Status check_budget_of(const StoreOptions& options, std::uint64_t container_bytes);

}  // namespace sluice::store
