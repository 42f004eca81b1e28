#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::tools {

/// Which block of which drive, and how often it had been written.
struct BlockStamp {
  std::uint64_t drive = 0;
  std::uint64_t block = 0;
  std::uint64_t generation = 0;
};

/// Fills `target` with data that no drive can compress, nor find twice within it or under another seed.
void fill_with_noise(std::span<std::byte> target, std::uint64_t seed);

/// Makes each 4 KiB of a block tell where it belongs. Cost: three words a 4 KiB page.
/// Requires: a multiple of 4 KiB.
void stamp(std::span<std::byte> block, const BlockStamp& stamp);

/// What a block of noise with stamps looks like, to compare with. Cost: a comparison of memory a block.
class ExpectedBlock {
 public:
  /// Requires: a multiple of 4 KiB.
  ExpectedBlock(std::size_t bytes, std::uint64_t seed);

  /// Returns: where `block` first is not the noise with these stamps; nothing where it is, to the last byte.
  /// Requires: a block of as many bytes.
  std::optional<std::size_t> first_difference(std::span<const std::byte> block, const BlockStamp& expected);

  /// The noise, under the stamps that were compared with last.
  std::span<const std::byte> bytes() const { return block_; }

 private:
  std::vector<std::byte> block_;
};

}  // namespace sluice::tools
