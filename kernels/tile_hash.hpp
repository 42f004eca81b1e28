#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

struct HashTarget;

/// XXH3-64, seed 0, of `bytes` bytes; the same on every target. data may be null if bytes is 0.
/// Threads: any.
std::uint64_t hash_bytes(const void* data, std::size_t bytes);

/// A plane's checksum: XXH3-64 over the hashes of its tiles of kTileElements elements, in order,
/// little-endian each.
std::uint64_t plane_hash(const std::uint64_t* tile_hashes, std::size_t tiles);

/// XXH3-64, seed 0, of bytes that come in pieces: equal to hash_bytes of the pieces joined.
/// Copyable: a copy goes on from the same bytes.
class Hasher {
 public:
  Hasher();
  void update(const void* data, std::size_t bytes);

  /// The hash of all bytes so far; more may follow.
  std::uint64_t digest() const;

 private:
  static constexpr std::size_t kStateBytes = 576;
  alignas(64) std::byte state_[kStateBytes];
  const HashTarget* target_;  // looked up once: pieces may be short
};

}  // namespace sluice::kernels
