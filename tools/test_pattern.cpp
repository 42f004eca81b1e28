#include "tools/test_pattern.hpp"

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

void fill_with_noise(std::span<std::byte> target) {
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= target.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = noise(i / sizeof word);
    std::memcpy(target.data() + i, &word, sizeof word);
  }
}

void stamp(std::span<std::byte> block, const BlockStamp& stamp) {
  for (std::size_t at = 0; at < block.size(); at += kPageBytes)
    std::memcpy(block.data() + at, &stamp, sizeof stamp);
}

bool matches(std::span<const std::byte> block, const BlockStamp& stamp) {
  for (std::size_t at = 0; at < block.size(); at += kPageBytes) {
    if (std::memcmp(block.data() + at, &stamp, sizeof stamp) != 0) return false;
    for (std::size_t i = at + sizeof stamp; i < at + kPageBytes; i += sizeof(std::uint64_t)) {
      const std::uint64_t word = noise(i / sizeof word);
      if (std::memcmp(block.data() + i, &word, sizeof word) != 0) return false;
    }
  }
  return true;
}

}  // namespace sluice::tools
