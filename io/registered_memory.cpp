#include "io/registered_memory.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

namespace sluice::io {

RegisteredMemory::RegisteredMemory(std::span<const std::span<std::byte>> regions,
                                   std::size_t piece_bytes_max) {
  for (const std::span<std::byte> region : regions) {
    for (std::size_t at = 0; at < region.size(); at += piece_bytes_max)
      pieces_.push_back(region.subspan(at, std::min(piece_bytes_max, region.size() - at)));
  }
  std::ranges::sort(pieces_, std::less<const std::byte*>(),
                    [](std::span<std::byte> piece) { return piece.data(); });
}

int RegisteredMemory::find(const void* buffer, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(buffer);
  const auto after = std::ranges::upper_bound(pieces_, begin, std::less<const std::byte*>(),
                                              [](std::span<std::byte> piece) { return piece.data(); });
  if (after == pieces_.begin()) return -1;
  const auto piece = std::prev(after);
  const auto offset = static_cast<std::size_t>(begin - piece->data());
  const bool inside = offset <= piece->size() && bytes <= piece->size() - offset;
  return inside ? static_cast<int>(piece - pieces_.begin()) : -1;
}

}  // namespace sluice::io
