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
inline constexpr std::uint32_t kFormatVersion = 1;

using VolumeId = std::array<std::byte, 16>;
using SuperblockBytes = std::array<std::byte, kSuperblockBytes>;

/// What a container says about itself in its first bytes.
/// Invariant: rank < world, drive < drives, slots_offset % grid_bytes = 0, slots_offset <= container_bytes.
struct Superblock {
  VolumeId volume_id = {};  ///< random, the same on all drives of one rank
  std::uint64_t store_id = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t drive = 0;
  std::uint32_t drives = 1;
  std::uint32_t keep_commits = 0;  ///< 0: scratch
  Undo undo = Undo::kOn;
  std::uint32_t chunk_elements = 0;
  std::uint32_t grid_bytes = 0;
  std::uint64_t slots_offset = 0;  ///< of the first slot; what lies before is the store's own
  std::uint64_t container_bytes = 0;
  friend bool operator==(const Superblock&, const Superblock&) = default;
};

SuperblockBytes encode(const Superblock& superblock);

/// Errors: kDataLoss for fewer bytes than a superblock, a foreign magic, a checksum that does not match or
/// fields that contradict each other; kUnimplemented for a newer version, with its number.
Result<Superblock> decode(std::span<const std::byte> bytes);

/// Whether nothing was ever written here: a container whose making was cut short.
bool is_blank(std::span<const std::byte> bytes);

}  // namespace sluice::store
