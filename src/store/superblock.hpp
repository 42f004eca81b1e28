#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice::store {

/// One sector, so that a crash leaves it whole or not written. FORMAT.md has its byte map.
inline constexpr std::size_t kSuperblockBytes = 512;
inline constexpr std::uint32_t kFormatVersion = 3;
/// The first in which a chunk's record may lie on any of the drives.
inline constexpr std::uint32_t kRoamingVersion = 3;

using VolumeId = std::array<std::byte, 16>;
using SuperblockBytes = std::array<std::byte, kSuperblockBytes>;

/// What a container says about itself in its first bytes.
/// Invariant: rank < world, drive < drives; chunk_elements and grid_bytes are those that LayoutOptions takes;
///   kSuperblockBytes <= slots_offset <= container_bytes < 2^63; grid_bytes divides every offset and
///   place_bytes.
///   With commits: kSuperblockBytes <= catalog_offset, 0 < catalog_bytes,
///   catalog_offset + catalog_bytes <= places_offset, 0 < place_bytes,
///   places_offset + place_count * place_bytes <= slots_offset, place_count = keep_commits + 1.
///   In a scratch store all catalog and place fields and the parent are 0 and it is not committed. No store
///   is its own parent.
struct Superblock {
  std::uint32_t version = kFormatVersion;  ///< as the store was made; it keeps to what that allows
  VolumeId volume_id = {};                 ///< random, the same on all drives of one rank
  std::uint64_t store_id = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t drive = 0;
  std::uint32_t drives = 1;
  std::uint32_t keep_commits = 0;  ///< 0: scratch, then catalog and places are absent
  Undo undo = Undo::kOn;
  std::uint32_t chunk_elements = 0;
  std::uint32_t grid_bytes = 0;
  std::uint64_t slots_offset = 0;  ///< of the first slot; what lies before is the store's own
  std::uint64_t container_bytes =
      0;  ///< as the store was made; a frozen record that was written to may lie beyond
  std::uint64_t generation = 0;       ///< greater than that of the store it was made from
  std::uint64_t parent_store_id = 0;  ///< of the store it was made from; 0: from none
  std::uint64_t catalog_offset = 0;
  std::uint64_t catalog_bytes = 0;     ///< unpadded
  std::uint64_t catalog_checksum = 0;  ///< XXH3-64 of them
  std::uint64_t places_offset = 0;     ///< of the first commit record place
  std::uint64_t place_bytes = 0;       ///< of one, on the grid
  std::uint32_t place_count = 0;
  /// Set once the first commit is known to be durable on all ranks: from then on a store without a whole
  /// record is a damaged one, before it is one whose making was cut short.
  bool committed = false;
  friend bool operator==(const Superblock&, const Superblock&) = default;
};

SuperblockBytes encode(const Superblock& superblock);

/// A superblock of version 1, a scratch store's, has zeros in the fields from `generation` on.
/// Errors: kDataLoss for fewer bytes than a superblock, a foreign magic, a checksum that does not match or
/// fields that contradict each other, with both; kUnimplemented for a newer version, with its number.
Result<Superblock> decode(std::span<const std::byte> bytes);

/// Whether nothing was ever written here: a container whose making was cut short.
bool is_blank(std::span<const std::byte> bytes);

}  // namespace sluice::store
