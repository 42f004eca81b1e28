#include "store/superblock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <string>

#include "kernels/tile_hash.hpp"

namespace sluice::store {
namespace {

constexpr std::string_view kMagic("\x89Sluice\n", 8);
constexpr std::size_t kVersionOffset = 8;
constexpr std::size_t kChecksumOffset = kSuperblockBytes - 8;

template <std::unsigned_integral T>
void put(std::span<std::byte> bytes, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[offset + i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
T get(std::span<const std::byte> bytes, std::size_t offset) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(std::to_integer<T>(bytes[offset + i]) << (8 * i));
  return value;
}

bool is_consistent(const Superblock& superblock, std::uint32_t undo) {
  return superblock.rank < superblock.world && superblock.drive < superblock.drives && undo <= 1 &&
         superblock.chunk_elements > 0 && std::has_single_bit(superblock.grid_bytes) &&
         superblock.slots_offset % superblock.grid_bytes == 0 &&
         superblock.slots_offset >= kSuperblockBytes && superblock.slots_offset <= superblock.container_bytes;
}

}  // namespace

SuperblockBytes encode(const Superblock& superblock) {
  SuperblockBytes bytes = {};
  for (std::size_t i = 0; i < kMagic.size(); ++i) bytes[i] = static_cast<std::byte>(kMagic[i]);
  put(bytes, kVersionOffset, kFormatVersion);
  put(bytes, 12, std::uint32_t{kSuperblockBytes});
  std::copy(superblock.volume_id.begin(), superblock.volume_id.end(), bytes.begin() + 16);
  put(bytes, 32, superblock.store_id);
  put(bytes, 40, superblock.rank);
  put(bytes, 44, superblock.world);
  put(bytes, 48, superblock.drive);
  put(bytes, 52, superblock.drives);
  put(bytes, 56, superblock.keep_commits);
  put(bytes, 60, std::uint32_t{superblock.undo == Undo::kOn});
  put(bytes, 64, superblock.chunk_elements);
  put(bytes, 68, superblock.grid_bytes);
  put(bytes, 72, superblock.slots_offset);
  put(bytes, 80, superblock.container_bytes);
  put(bytes, kChecksumOffset, kernels::hash_bytes(bytes.data(), kChecksumOffset));
  return bytes;
}

Result<Superblock> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kSuperblockBytes) {
    return Status(Code::kDataLoss,
                  fmt::format("truncated: {} bytes, a superblock has {}", bytes.size(), kSuperblockBytes));
  }
  const bool ours = std::equal(kMagic.begin(), kMagic.end(), bytes.begin(),
                               [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
  if (!ours) {
    return Status(Code::kDataLoss,
                  fmt::format("not a Sluice store: it begins with {:#018x}", get<std::uint64_t>(bytes, 0)));
  }
  const auto version = get<std::uint32_t>(bytes, kVersionOffset);
  if (version > kFormatVersion) {
    return Status(Code::kUnimplemented,
                  fmt::format("a Sluice store of format version {}, this build reads up to version {}",
                              version, kFormatVersion));
  }
  const auto checksum = kernels::hash_bytes(bytes.data(), kChecksumOffset);
  if (checksum != get<std::uint64_t>(bytes, kChecksumOffset)) {
    return Status(
        Code::kDataLoss,
        fmt::format("a Sluice store whose superblock is damaged: its checksum is {:016x}, not {:016x}",
                    checksum, get<std::uint64_t>(bytes, kChecksumOffset)));
  }
  Superblock superblock;
  std::copy_n(bytes.begin() + 16, superblock.volume_id.size(), superblock.volume_id.begin());
  superblock.store_id = get<std::uint64_t>(bytes, 32);
  superblock.rank = get<std::uint32_t>(bytes, 40);
  superblock.world = get<std::uint32_t>(bytes, 44);
  superblock.drive = get<std::uint32_t>(bytes, 48);
  superblock.drives = get<std::uint32_t>(bytes, 52);
  superblock.keep_commits = get<std::uint32_t>(bytes, 56);
  const auto undo = get<std::uint32_t>(bytes, 60);
  superblock.undo = undo == 0 ? Undo::kOff : Undo::kOn;
  superblock.chunk_elements = get<std::uint32_t>(bytes, 64);
  superblock.grid_bytes = get<std::uint32_t>(bytes, 68);
  superblock.slots_offset = get<std::uint64_t>(bytes, 72);
  superblock.container_bytes = get<std::uint64_t>(bytes, 80);
  if (version == 0 || !is_consistent(superblock, undo)) {
    return Status(Code::kDataLoss, "a Sluice store whose superblock contradicts itself");
  }
  return superblock;
}

bool is_blank(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace sluice::store
