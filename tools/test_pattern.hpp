#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::tools {

/// Which block of which drive, and how often it had been written.
struct BlockStamp {
  std::uint64_t drive = 0;
  std::uint64_t block = 0;
  std::uint64_t generation = 0;
};

/// Fills `target` with data that no drive can compress or deduplicate within it.
void fill_with_noise(std::span<std::byte> target);

/// Makes each 4 KiB of a block of noise tell where it belongs. Cost: three words a 4 KiB page.
/// Requires: a multiple of 4 KiB.
void stamp(std::span<std::byte> block, const BlockStamp& stamp);

/// Whether `block` is the noise with these stamps, to the last byte.
bool matches(std::span<const std::byte> block, const BlockStamp& stamp);

}  // namespace sluice::tools
