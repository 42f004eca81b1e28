#include "store/container.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/tile_hash.hpp"
#include "store/deal.hpp"
#include "store/offsets.hpp"

namespace sluice::store {
namespace {

constexpr std::uint64_t kTooMany = std::numeric_limits<std::uint64_t>::max();

Status check(const StoreOptions& options) {
  if (options.rank >= options.world) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} is outside its world of {}", options.rank, options.world));
  }
  if (!std::has_single_bit(options.grid_bytes)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("grid_bytes = {}: not a power of two", options.grid_bytes));
  }
  for (const std::uint32_t chunk : options.stored_chunks) {
    if (chunk >= options.chunks.size() || options.chunks[chunk].record.bytes % options.grid_bytes != 0) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("stored_chunks: chunk {} is not one of the {} chunks laid out on a grid of {} bytes",
                      chunk, options.chunks.size(), options.grid_bytes));
    }
  }
  if (options.spilled_gradient_bytes % options.grid_bytes != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("spilled_gradient_bytes = {}: not a multiple of the grid of {} bytes",
                              options.spilled_gradient_bytes, options.grid_bytes));
  }
  if (options.keep_commits > kKeepCommitsMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("keep_commits = {}: not from 0 to {}", options.keep_commits, kKeepCommitsMax));
  }
  if (options.parent_store_id != 0 &&
      (options.keep_commits == 0 || options.parent_store_id == options.store_id)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("parent_store_id = {:016x}: a scratch store is made from none, no store from "
                              "itself (keep_commits = {}, store_id = {:016x})",
                              options.parent_store_id, options.keep_commits, options.store_id));
  }
  if (options.keep_commits == 0) return {};
  if (options.stored_chunks.size() != options.chunks.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("stored_chunks: {} of {} chunks, a store with commits holds all",
                              options.stored_chunks.size(), options.chunks.size()));
  }
  if (options.record_bytes_max == 0) {
    return Status(Code::kInvalidArgument, "record_bytes_max = 0: a commit record needs room");
  }
  return {};
}

Status check_weights(const StoreOptions& options, std::uint32_t drives) {
  const std::span<const double> weights = options.drive_weights;
  const auto taken = [](double weight) { return std::isfinite(weight) && weight > 0; };
  if (weights.empty() || (weights.size() == drives && std::ranges::all_of(weights, taken))) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("drive_weights = [{}]: not {} numbers > 0", fmt::join(weights, ", "), drives));
}

Result<SlotTable> plan_slots(const StoreOptions& options, std::uint32_t drives, std::uint64_t first_offset) {
  return SlotTable::plan({.chunks = options.chunks,
                          .stored_chunks = options.stored_chunks,
                          .drives = drives,
                          .weights = options.drive_weights,
                          .spares = options.spares,
                          .keep_commits = options.keep_commits,
                          .undo = options.undo,
                          .first_offset = first_offset});
}

Catalog catalog_of(const StoreOptions& options, const SlotTable& slots) {
  return {.parameters = {options.parameters.begin(), options.parameters.end()},
          .aliases = {options.aliases.begin(), options.aliases.end()},
          .chunks = slots.stored_chunks(),
          .runs = slots.runs()};
}

/// Puts catalog and commit record places between the superblock and the slots.
Result<ContainerPlan> plan_durable(const StoreOptions& options, std::uint32_t drives, Superblock superblock) {
  SLUICE_ASSIGN_OR_RETURN(const SlotTable unplaced, plan_slots(options, drives, superblock.slots_offset));
  superblock.catalog_offset = superblock.slots_offset;
  superblock.catalog_bytes = encode(catalog_of(options, unplaced)).size();  // whatever the offsets in it
  superblock.place_count = options.keep_commits + 1;
  const auto catalog_room = checked_align_up(superblock.catalog_bytes, options.grid_bytes);
  const auto place_bytes = checked_align_up(options.record_bytes_max, options.grid_bytes);
  std::uint64_t places_bytes = 0;
  if (!catalog_room || !place_bytes ||
      __builtin_mul_overflow(*place_bytes, superblock.place_count, &places_bytes) ||
      __builtin_add_overflow(superblock.catalog_offset, *catalog_room, &superblock.places_offset) ||
      __builtin_add_overflow(superblock.places_offset, places_bytes, &superblock.slots_offset)) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{} places for commit records of {} bytes do not fit one file",
                              superblock.place_count, options.record_bytes_max));
  }
  superblock.place_bytes = *place_bytes;
  SLUICE_ASSIGN_OR_RETURN(SlotTable slots, plan_slots(options, drives, superblock.slots_offset));
  const Catalog catalog = catalog_of(options, slots);
  SLUICE_RETURN_IF_ERROR(check(catalog));
  std::vector<std::byte> bytes = encode(catalog);
  superblock.catalog_checksum = kernels::hash_bytes(bytes.data(), bytes.size());
  superblock.container_bytes = slots.container_bytes(0);
  return ContainerPlan{superblock, std::move(bytes), std::move(slots)};
}

Status too_small(const StoreOptions& options, std::uint64_t needed_bytes, std::string_view parts) {
  std::string text = fmt::format("nvme_budget_bytes = {} is too small, the smallest that would do is {}: {}",
                                 options.nvme_budget_bytes, needed_bytes, parts);
  const std::uint64_t gradient_bytes = options.spilled_gradient_slots * options.spilled_gradient_bytes;
  text += fmt::format(", {} for spilled gradients", gradient_bytes);
  if (options.nvme_bytes_in_use > 0) {
    text += fmt::format(", {} in the store that is there", options.nvme_bytes_in_use);
  }
  return Status(Code::kResourceExhausted, text);
}

/// With what is in use already; 2^64 - 1 if that overflows.
std::uint64_t beside_what_is_in_use(const StoreOptions& options, std::uint64_t bytes) {
  return bytes > kTooMany - options.nvme_bytes_in_use ? kTooMany : bytes + options.nvme_bytes_in_use;
}

Status beyond_64_bits() {
  return Status(Code::kResourceExhausted, "the store needs more bytes than 64 bits count");
}

}  // namespace

Result<ContainerPlan> plan_containers(const StoreOptions& options, std::uint32_t drives) {
  SLUICE_RETURN_IF_ERROR(check(options));
  SLUICE_RETURN_IF_ERROR(check_weights(options, drives));
  Superblock superblock{.store_id = options.store_id,
                        .rank = options.rank,
                        .world = options.world,
                        .drives = drives,
                        .keep_commits = options.keep_commits,
                        .undo = options.undo,
                        .chunk_elements = options.chunk_elements,
                        .grid_bytes = options.grid_bytes,
                        .slots_offset = std::max<std::uint64_t>(options.grid_bytes, kSuperblockBytes),
                        .generation = options.generation,
                        .parent_store_id = options.parent_store_id};
  if (options.keep_commits > 0) return plan_durable(options, drives, superblock);
  SLUICE_ASSIGN_OR_RETURN(SlotTable slots, plan_slots(options, drives, superblock.slots_offset));
  superblock.container_bytes = slots.container_bytes(0);
  return ContainerPlan{superblock, {}, std::move(slots)};
}

std::vector<io::Place> gradient_places(const StoreOptions& options, std::uint32_t drives) {
  std::vector<io::Place> places;
  std::vector<std::uint64_t> ends(drives);
  for (const std::uint32_t drive : deal(options.spilled_gradient_slots, drives, options.drive_weights)) {
    places.push_back({drive, ends[drive]});
    ends[drive] += options.spilled_gradient_bytes;
  }
  return places;
}

std::uint64_t needed_bytes(const StoreOptions& options, std::uint32_t drives) {
  const auto plan = plan_containers(options, drives);
  std::uint64_t bytes = 0;
  if (!plan.ok() ||
      __builtin_mul_overflow(options.spilled_gradient_slots, options.spilled_gradient_bytes, &bytes)) {
    return kTooMany;
  }
  for (std::uint32_t drive = 0; drive < drives; ++drive) {
    if (__builtin_add_overflow(bytes, plan->slots.container_bytes(drive), &bytes)) return kTooMany;
  }
  return bytes;
}

Status check_budget(const StoreOptions& options, std::uint32_t drives) {
  const std::uint64_t needed = needed_bytes(options, drives);
  const std::uint64_t together = beside_what_is_in_use(options, needed);
  if (together == kTooMany) return beyond_64_bits();
  if (options.nvme_budget_bytes == 0 || together <= options.nvme_budget_bytes) return {};
  const std::uint64_t gradient_bytes = options.spilled_gradient_slots * options.spilled_gradient_bytes;
  const Status status = too_small(options, together,
                                  fmt::format("{} for {} records with their slots on {} drives",
                                              needed - gradient_bytes, options.stored_chunks.size(), drives));
  if (options.undo == Undo::kOff) return status;
  StoreOptions without_undo = options;
  without_undo.undo = Undo::kOff;
  return Status(status.code(),
                fmt::format("{}; {} without undo", status.message(),
                            beside_what_is_in_use(options, needed_bytes(without_undo, drives))));
}

Status check_budget_of(const StoreOptions& options, std::uint64_t container_bytes) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(options.spilled_gradient_slots, options.spilled_gradient_bytes, &bytes) ||
      __builtin_add_overflow(bytes, container_bytes, &bytes)) {
    return beyond_64_bits();
  }
  const std::uint64_t together = beside_what_is_in_use(options, bytes);
  if (together == kTooMany) return beyond_64_bits();
  if (options.nvme_budget_bytes == 0 || together <= options.nvme_budget_bytes) return {};
  return too_small(options, together, fmt::format("{} in the store's containers", container_bytes));
}

}  // namespace sluice::store
