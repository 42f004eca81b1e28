#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "io/file.hpp"
#include "memory/arena.hpp"
#include "sluice/status.hpp"
#include "store/layout.hpp"

namespace sluice::store {

/// Of the buffer that planes stream through.
inline constexpr std::uint64_t kReaderBytes = 8 << 20;

/// One plane of a chunk on a drive.
struct StoredPlane {
  const io::File* file = nullptr;
  std::uint64_t offset = 0;  ///< on the grid; what lies behind it up to the grid may be read
  std::uint32_t elements = 0;
  PlaneFormat format = {};
  std::uint32_t grid_bytes = 0;  ///< as LayoutOptions takes
  std::uint64_t checksum = 0;

  std::uint64_t bytes() const { return format.bytes(elements); }
};

/// Reads parts of planes of any size through one buffer and gives out only what was verified: the first read
/// of a plane goes over all of it, later ones over the tiles they need, whose hashes are kept from the first.
/// A plane that fits the buffer, or a read that goes on where the one before ended, is served from what is in
/// the buffer.
/// Threads: one at a time. Blocks: on the drives. Memory: kReaderBytes, and 8 bytes a tile of kKeptPlanes
/// planes.
class PlaneReader {
 public:
  /// Planes whose hashes are kept: those of a chunk, and of the next.
  static constexpr std::size_t kKeptPlanes = 2 * kMaxPlanes;

  /// Errors: kResourceExhausted.
  static Result<PlaneReader> create();

  /// The values of elements [first, first + count) of the plane.
  /// Shape: target holds format.bytes(count). Requires: first + count <= elements; first is a multiple of
  /// format.elements_per_value.
  /// Errors: kDataLoss, with both checksums, for a plane that does not hash to its checksum, or whose file
  /// ends before it does; kIoError.
  Status read(const StoredPlane& plane, std::uint32_t first, std::uint32_t count, std::byte* target);

  /// Reads all of it; `heard` is told of every part's bytes and may end it with its status.
  /// Errors: as read(); those of `heard`.
  Status verify(const StoredPlane& plane, const std::function<Status(std::uint64_t bytes)>& heard);

 private:
  struct KeptPlane {
    const io::File* file = nullptr;
    std::uint64_t offset = 0;
    std::vector<std::uint64_t> tile_hashes;
  };
  /// The tiles that the buffer holds.
  struct Window {
    const io::File* file = nullptr;
    std::uint64_t offset = 0;  // of their plane
    std::uint32_t first_tile = 0;
    std::uint32_t end_tile = 0;
    std::uint64_t start_byte = 0;  // of the plane, at the front of the buffer
  };

  explicit PlaneReader(memory::Arena buffer) : buffer_(std::move(buffer)) {}

  bool holds_plane(const StoredPlane& plane) const;
  bool holds_tile(const StoredPlane& plane, std::uint32_t tile) const;
  std::uint64_t hash_of(const StoredPlane& plane, std::uint32_t tile) const;
  /// Fills the buffer. Requires: the tiles fit it.
  Status fetch(const StoredPlane& plane, std::uint32_t first_tile, std::uint32_t end_tile);
  Result<std::vector<std::uint64_t>> hash_all(const StoredPlane& plane,
                                              const std::function<Status(std::uint64_t bytes)>& heard);
  Result<const std::vector<std::uint64_t>*> tile_hashes(const StoredPlane& plane);
  /// Fills the buffer from `tile` on, up to `end_tile` if that fits it, and verifies what it holds.
  Status fetch_verified(const StoredPlane& plane, const std::vector<std::uint64_t>& tile_hashes,
                        std::uint32_t tile, std::uint32_t end_tile);

  memory::Arena buffer_;
  Window window_;
  std::vector<KeptPlane> kept_;  // the last used first
};

}  // namespace sluice::store
