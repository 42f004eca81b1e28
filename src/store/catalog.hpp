#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/status.hpp"
#include "sluice/types.hpp"
#include "store/layout.hpp"
#include "store/superblock.hpp"

namespace sluice::store {

/// The longest name of a parameter, an alias or a group that a store keeps.
inline constexpr std::uint32_t kNameBytesMax = 1 << 16;

/// A parameter as the store was made for it.
struct StoredParameter {
  std::string name = {};
  std::vector<std::int64_t> shape = {};
  std::uint32_t group = 0;
  Policy policy = Policy::kBf16Split;
  std::uint8_t optimizer = 0;  ///< alternative of Optimizer; which planes there are depends on it
  DType frozen_dtype = DType::kBF16;
  GradientStorage gradient = GradientStorage::kFp32;
  std::uint32_t rank = 0;  ///< in the communicator of its group
  std::uint32_t world = 1;
  friend bool operator==(const StoredParameter&, const StoredParameter&) = default;
};

/// A name that is tied to a parameter.
struct StoredAlias {
  std::string name = {};
  std::uint32_t parameter = 0;  ///< index in parameters
  friend bool operator==(const StoredAlias&, const StoredAlias&) = default;
};

struct StoredChunk {
  std::uint32_t class_index = 0;
  std::uint32_t elements = 0;
  std::uint32_t drive =
      0;  ///< its home: its slots were counted for there; version 2 has its records nowhere else
  friend bool operator==(const StoredChunk&, const StoredChunk&) = default;
};

/// The slots of one class on one drive, side by side; at least one.
struct SlotRun {
  std::uint32_t class_index = 0;
  std::uint32_t drive = 0;
  std::uint64_t first_offset = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slots = 0;
  friend bool operator==(const SlotRun&, const SlotRun&) = default;
};

/// The tables that one rank's store is made with and that never change: parameters, chunks, slots. The same
/// on every drive of the rank. FORMAT.md has the byte map.
/// Invariant: see check().
struct Catalog {
  std::vector<StoredParameter> parameters;
  std::vector<StoredAlias> aliases;
  std::vector<StoredChunk> chunks;
  std::vector<SlotRun> runs;
  friend bool operator==(const Catalog&, const Catalog&) = default;
};

/// Names are unique over parameters and aliases, 1 to kNameBytesMax bytes; the product of a shape is at most
/// 2^63; parameters of one group agree in all but name and shape; every index is in range; chunks are those
/// that ElementLayout::build gives for the parameters; no two runs are of one class on one drive or overlap;
/// each chunk's class has a run on its home, with slots for all its chunks there; all runs of a class have slots
/// that hold its records.
/// Errors: kInvalidArgument, saying what is wrong; kUnimplemented with the number of a policy, optimizer,
/// dtype or gradient storage that this build does not have, and for a policy that its optimizer does not go with.
Status check(const Catalog& catalog);

/// Requires: check() accepts it.
std::vector<std::byte> encode(const Catalog& catalog);

/// Errors: kDataLoss, saying what is wrong, for bytes that are truncated, go on after the last table, or
/// break the invariant; kUnimplemented as check(). Nothing is allocated before the count that asks for it was
/// checked against the bytes that are there.
Result<Catalog> decode_catalog(std::span<const std::byte> bytes);

/// The layout that the store was made with. Requires: check() accepts the catalog.
/// Errors: kDataLoss where the chunks are not those of the superblock's chunk_elements, or a slot is too
/// small for a record on its grid.
Result<ElementLayout> layout_of(const Catalog& catalog, const Superblock& superblock);

/// Whether the slots on the superblock's drive lie on its grid, from slots_offset on, before container_bytes,
/// and on no drive beyond its drives. Errors: kDataLoss, saying which do not.
Status check_runs(const Catalog& catalog, const Superblock& superblock);

/// Elements of a shape; 1 for a scalar.
/// Errors: kInvalidArgument for a negative dimension or more than 2^63 elements.
Result<std::uint64_t> count_elements(std::span<const std::int64_t> shape);

/// What ElementLayout::build needs of the stored parameters. Requires: check() accepts the catalog.
std::vector<ParameterSpec> specs_of(const Catalog& catalog);

}  // namespace sluice::store
