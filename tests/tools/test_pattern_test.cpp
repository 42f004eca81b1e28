#include "tools/test_pattern.hpp"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

TEST(TestPattern, EveryChangedByteAndEveryWrongStampIsSeen) {
  std::vector<std::byte> block(2 * 4096);
  fill_with_noise(block);
  const BlockStamp right{.drive = 1, .block = 7, .generation = 3};
  stamp(block, right);
  ASSERT_TRUE(matches(block, right));
  EXPECT_FALSE(matches(block, {.drive = 0, .block = 7, .generation = 3}));
  EXPECT_FALSE(matches(block, {.drive = 1, .block = 8, .generation = 3}));
  EXPECT_FALSE(matches(block, {.drive = 1, .block = 7, .generation = 2}));
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] ^= std::byte{0x10};
    ASSERT_FALSE(matches(block, right)) << "byte " << i;
    block[i] ^= std::byte{0x10};
  }
}

TEST(TestPattern, NoiseDoesNotRepeat) {
  std::vector<std::uint64_t> words(1 << 16);
  fill_with_noise(std::as_writable_bytes(std::span(words)));
  EXPECT_EQ(std::set<std::uint64_t>(words.begin(), words.end()).size(), words.size());
}

}  // namespace
}  // namespace sluice::tools
