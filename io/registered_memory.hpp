#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::io {

/// Memory that the kernel holds in pieces with numbers: which piece, if any, a request lies in.
/// Invariant: pieces ascend in address and do not overlap; a piece's number is its place in pieces().
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  /// Cuts regions, which do not overlap, into pieces of at most `piece_bytes_max`.
  RegisteredMemory(std::span<const std::span<std::byte>> regions, std::size_t piece_bytes_max);

  bool empty() const { return pieces_.empty(); }
  const std::vector<std::span<std::byte>>& pieces() const { return pieces_; }

  /// Returns: the number of the piece that holds all of it, -1 when none does.
  int find(const void* buffer, std::size_t bytes) const;

 private:
  std::vector<std::span<std::byte>> pieces_;
};

}  // namespace sluice::io
