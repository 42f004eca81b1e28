#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/stripes.hpp"

namespace sluice::kernels {

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

  /// Whether a multiple of `stripes` whole stripes has come so far. Requires: stripes divides 16.
  bool at_stripe(std::size_t stripes) const;

  /// The sums after all bytes so far. Requires: at_stripe(1); take_back() before anything else.
  StripeSums lend();

  /// Goes on after `bytes` more bytes that were added to the sums.
  /// Requires: whole stripes, more than 240 bytes; 64 bytes at least follow before a digest, whose last stripe is added
  /// with another part of the secret.
  void take_back(const StripeSums& sums, std::size_t bytes);

  /// The hash of all bytes so far; more may follow.
  std::uint64_t digest() const;

 private:
  static constexpr std::size_t kStateBytes = 576;
  alignas(64) std::byte state_[kStateBytes];
};

}  // namespace sluice::kernels
