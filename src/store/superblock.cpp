#include "store/superblock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "kernels/tile_hash.hpp"
#include "store/bytes.hpp"
#include "store/layout.hpp"
#include "store/offsets.hpp"

namespace sluice::store {
namespace {

constexpr std::string_view kMagic("\x89Sluice\n", 8);
constexpr std::size_t kChecksumOffset = kSuperblockBytes - 8;

/// The fields that are a flag, as they were read.
struct Flags {
  std::uint32_t undo = 0;
  std::uint32_t committed = 0;
};

Status contradiction(std::string what) {
  return Status(Code::kDataLoss, "a Sluice store whose superblock contradicts itself: " + what);
}

Status check_scratch(const Superblock& superblock) {
  if (superblock.catalog_offset != 0 || superblock.catalog_bytes != 0 || superblock.catalog_checksum != 0 ||
      superblock.places_offset != 0 || superblock.place_bytes != 0 || superblock.place_count != 0 ||
      superblock.parent_store_id != 0 || superblock.committed) {
    return contradiction("it keeps no commits and has a catalog, places for them or a parent");
  }
  return {};
}

Status check_commits(const Superblock& superblock) {
  if (superblock.parent_store_id != 0 && superblock.parent_store_id == superblock.store_id) {
    return contradiction(fmt::format("store {:016x} was made from itself", superblock.store_id));
  }
  if (superblock.keep_commits > kKeepCommitsMax || superblock.place_count != superblock.keep_commits + 1) {
    return contradiction(fmt::format("{} places for {} commits, of which it may keep up to {}",
                                     superblock.place_count, superblock.keep_commits, kKeepCommitsMax));
  }
  if (superblock.catalog_offset % superblock.grid_bytes != 0 ||
      superblock.places_offset % superblock.grid_bytes != 0 ||
      superblock.place_bytes % superblock.grid_bytes != 0) {
    return contradiction(fmt::format(
        "catalog at {}, places at {} of {} bytes, not all on its grid of {} bytes", superblock.catalog_offset,
        superblock.places_offset, superblock.place_bytes, superblock.grid_bytes));
  }
  // Each difference is taken of two that were compared, so none wraps.
  const bool catalog_fits = superblock.catalog_offset >= kSuperblockBytes && superblock.catalog_bytes > 0 &&
                            superblock.catalog_offset <= superblock.places_offset &&
                            superblock.catalog_bytes <= superblock.places_offset - superblock.catalog_offset;
  if (!catalog_fits) {
    return contradiction(fmt::format(
        "{} bytes of catalog at {} do not lie between byte {} and the places at {}", superblock.catalog_bytes,
        superblock.catalog_offset, kSuperblockBytes, superblock.places_offset));
  }
  const bool places_fit =
      superblock.place_bytes > 0 && superblock.places_offset <= superblock.slots_offset &&
      superblock.place_bytes <= (superblock.slots_offset - superblock.places_offset) / superblock.place_count;
  if (!places_fit) {
    return contradiction(fmt::format("{} places of {} bytes at {} do not lie before the slots at {}",
                                     superblock.place_count, superblock.place_bytes, superblock.places_offset,
                                     superblock.slots_offset));
  }
  return {};
}

Status check(const Superblock& superblock, Flags flags) {
  if (superblock.rank >= superblock.world) {
    return contradiction(
        fmt::format("rank {} is outside its world of {}", superblock.rank, superblock.world));
  }
  if (superblock.drive >= superblock.drives) {
    return contradiction(fmt::format("drive {} is not one of {}", superblock.drive, superblock.drives));
  }
  if (flags.undo > 1 || flags.committed > 1) {
    return contradiction(fmt::format("undo = {}, committed = {}, not 0 or 1", flags.undo, flags.committed));
  }
  if (const Status status = check(
          LayoutOptions{.chunk_elements = superblock.chunk_elements, .grid_bytes = superblock.grid_bytes});
      !status.ok()) {
    return contradiction(status.message());
  }
  if (superblock.slots_offset % superblock.grid_bytes != 0 || superblock.slots_offset < kSuperblockBytes ||
      superblock.slots_offset > superblock.container_bytes || superblock.container_bytes > kFileBytesMax) {
    return contradiction(fmt::format("slots from {} on, a grid of {} bytes, {} bytes in all",
                                     superblock.slots_offset, superblock.grid_bytes,
                                     superblock.container_bytes));
  }
  return superblock.keep_commits == 0 ? check_scratch(superblock) : check_commits(superblock);
}

}  // namespace

SuperblockBytes encode(const Superblock& superblock) {
  SuperblockBytes bytes = {};
  ByteWriter writer(bytes);
  writer.put(kMagic);
  writer.put(superblock.version);
  writer.put(std::uint32_t{kSuperblockBytes});
  writer.put(superblock.volume_id);
  writer.put(superblock.store_id);
  writer.put(superblock.rank);
  writer.put(superblock.world);
  writer.put(superblock.drive);
  writer.put(superblock.drives);
  writer.put(superblock.keep_commits);
  writer.put(std::uint32_t{superblock.undo == Undo::kOn});
  writer.put(superblock.chunk_elements);
  writer.put(superblock.grid_bytes);
  writer.put(superblock.slots_offset);
  writer.put(superblock.container_bytes);
  writer.put(superblock.generation);
  writer.put(superblock.catalog_offset);
  writer.put(superblock.catalog_bytes);
  writer.put(superblock.catalog_checksum);
  writer.put(superblock.places_offset);
  writer.put(superblock.place_bytes);
  writer.put(superblock.place_count);
  writer.put(std::uint32_t{superblock.committed});
  writer.put(superblock.parent_store_id);
  writer.zero_until(kChecksumOffset);
  writer.put(kernels::hash_bytes(bytes.data(), kChecksumOffset));
  return bytes;
}

Result<Superblock> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kSuperblockBytes) {
    return Status(Code::kDataLoss,
                  fmt::format("truncated: {} bytes, a superblock has {}", bytes.size(), kSuperblockBytes));
  }
  ByteReader reader(bytes.first(kSuperblockBytes));
  if (!std::ranges::equal(reader.take(kMagic.size()), std::as_bytes(std::span(kMagic)))) {
    return Status(Code::kDataLoss, fmt::format("not a Sluice store: it begins with {:#018x}",
                                               ByteReader(bytes).get<std::uint64_t>()));
  }
  const auto version = reader.get<std::uint32_t>();
  if (version > kFormatVersion) {
    return Status(Code::kUnimplemented,
                  fmt::format("a Sluice store of format version {}, this build reads up to version {}",
                              version, kFormatVersion));
  }
  const auto checksum = kernels::hash_bytes(bytes.data(), kChecksumOffset);
  const auto stored = ByteReader(bytes.subspan(kChecksumOffset)).get<std::uint64_t>();
  if (checksum != stored) {
    return Status(
        Code::kDataLoss,
        fmt::format("a Sluice store whose superblock is damaged: its checksum is {:016x}, not {:016x}",
                    checksum, stored));
  }
  const auto superblock_bytes = reader.get<std::uint32_t>();
  if (version == 0 || superblock_bytes != kSuperblockBytes) {
    return contradiction(fmt::format("version {}, {} bytes", version, superblock_bytes));
  }
  Superblock superblock{.version = version};
  Flags flags;
  std::ranges::copy(reader.take(superblock.volume_id.size()), superblock.volume_id.begin());
  superblock.store_id = reader.get<std::uint64_t>();
  superblock.rank = reader.get<std::uint32_t>();
  superblock.world = reader.get<std::uint32_t>();
  superblock.drive = reader.get<std::uint32_t>();
  superblock.drives = reader.get<std::uint32_t>();
  superblock.keep_commits = reader.get<std::uint32_t>();
  flags.undo = reader.get<std::uint32_t>();
  superblock.undo = flags.undo == 0 ? Undo::kOff : Undo::kOn;
  superblock.chunk_elements = reader.get<std::uint32_t>();
  superblock.grid_bytes = reader.get<std::uint32_t>();
  superblock.slots_offset = reader.get<std::uint64_t>();
  superblock.container_bytes = reader.get<std::uint64_t>();
  if (version >= 2) {
    superblock.generation = reader.get<std::uint64_t>();
    superblock.catalog_offset = reader.get<std::uint64_t>();
    superblock.catalog_bytes = reader.get<std::uint64_t>();
    superblock.catalog_checksum = reader.get<std::uint64_t>();
    superblock.places_offset = reader.get<std::uint64_t>();
    superblock.place_bytes = reader.get<std::uint64_t>();
    superblock.place_count = reader.get<std::uint32_t>();
    flags.committed = reader.get<std::uint32_t>();
    superblock.committed = flags.committed != 0;
    superblock.parent_store_id = reader.get<std::uint64_t>();
  }
  if (!is_blank(reader.take_until(kChecksumOffset))) {
    return contradiction(fmt::format("bytes behind the last field of version {} are not zeros", version));
  }
  SLUICE_RETURN_IF_ERROR(check(superblock, flags));
  return superblock;
}

bool is_blank(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace sluice::store
