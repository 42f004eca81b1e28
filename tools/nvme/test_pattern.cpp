#include "tools/nvme/test_pattern.hpp"

#include <algorithm>
#include <cstring>

namespace sluice::tools {
namespace {

constexpr std::size_t kPageBytes = 4096;

// splitmix64 of the word's index.
std::uint64_t noise(std::uint64_t index) {
  std::uint64_t z = (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

void fill_with_noise(std::span<std::byte> target, std::uint64_t seed) {
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= target.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = noise((seed << 40) + i / sizeof word);
    std::memcpy(target.data() + i, &word, sizeof word);
  }
}

void stamp(std::span<std::byte> block, const BlockStamp& stamp) {
  for (std::size_t at = 0; at < block.size(); at += kPageBytes)
    std::memcpy(block.data() + at, &stamp, sizeof stamp);
}

ExpectedBlock::ExpectedBlock(std::size_t bytes, std::uint64_t seed) : block_(bytes) {
  fill_with_noise(block_, seed);
}

std::optional<std::size_t> ExpectedBlock::first_difference(std::span<const std::byte> block,
                                                           const BlockStamp& expected) {
  stamp(block_, expected);
  if (std::memcmp(block.data(), block_.data(), block_.size()) == 0) return std::nullopt;
  const auto differs = std::mismatch(block.begin(), block.end(), block_.begin());
  return static_cast<std::size_t>(differs.first - block.begin());
}

}  // namespace sluice::tools
