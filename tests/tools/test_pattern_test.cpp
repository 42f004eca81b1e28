#include "tools/nvme/test_pattern.hpp"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

TEST(TestPattern, EveryChangedByteAndEveryWrongStampIsSeen) {
  ExpectedBlock expected(2 * 4096, 0);
  std::vector<std::byte> block(2 * 4096);
  fill_with_noise(block, 0);
  const BlockStamp right{.drive = 1, .block = 7, .generation = 3};
  stamp(block, right);
  ASSERT_EQ(expected.first_difference(block, right), std::nullopt);
  EXPECT_EQ(expected.first_difference(block, {.drive = 0, .block = 7, .generation = 3}), 0U);
  EXPECT_EQ(expected.first_difference(block, {.drive = 1, .block = 8, .generation = 3}), 8U);
  EXPECT_EQ(expected.first_difference(block, {.drive = 1, .block = 7, .generation = 2}), 16U);
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] ^= std::byte{0x10};
    ASSERT_EQ(expected.first_difference(block, right), i);
    block[i] ^= std::byte{0x10};
  }
}

TEST(TestPattern, NoiseOfAnotherSeedIsOtherNoise) {
  std::vector<std::byte> first(4096);
  std::vector<std::byte> second(4096);
  fill_with_noise(first, 1);
  fill_with_noise(second, 2);
  EXPECT_NE(first, second);
}

TEST(TestPattern, NoiseDoesNotRepeat) {
  std::vector<std::uint64_t> words(1 << 16);
  fill_with_noise(std::as_writable_bytes(std::span(words)), 3);
  EXPECT_EQ(std::set<std::uint64_t>(words.begin(), words.end()).size(), words.size());
}

}  // namespace
}  // namespace sluice::tools
