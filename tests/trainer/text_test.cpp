#include "trainer/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace sluice::trainer {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint8_t> counting(std::size_t bytes) {
  std::vector<std::uint8_t> text(bytes);
  std::iota(text.begin(), text.end(), std::uint8_t{0});
  return text;
}

TEST(Text, EntropyIsThatOfTheBytesCounts) {
  EXPECT_NEAR(unigram_entropy(counting(1024)), std::log(256.0), 1e-12);
  EXPECT_EQ(unigram_entropy(std::vector<std::uint8_t>(10, 'a')), 0);
  const std::vector<std::uint8_t> quarter = {'a', 'a', 'a', 'b'};
  EXPECT_NEAR(unigram_entropy(quarter), -(0.75 * std::log(0.75) + 0.25 * std::log(0.25)), 1e-15);
}

TEST(Text, SplitHoldsOutTheLastTenth) {
  const auto text = counting(100'000);
  const auto split = split_text(text, 64);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->training.size(), 90'000U);
  EXPECT_EQ(split->held_out.size(), 10'000U);
  EXPECT_EQ(split->held_out.data(), text.data() + 90'000);
}

TEST(Text, SplitHoldsOutAtLeastFourKibibytes) {
  const auto text = counting(10'000);
  const auto split = split_text(text, 64);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->held_out.size(), 4096U);
}

TEST(Text, RefusesATextThatIsTooShortWithTheNumbers) {
  const auto text = counting(4096 + 64);
  const auto split = split_text(text, 64);
  EXPECT_EQ(split.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(split.status().message(), HasSubstr("has 4160 bytes; needed are at least 4161"));
  EXPECT_TRUE(split_text(counting(4161), 64).ok());
}

TEST(Text, MissingFileIsNamed) {
  const auto text = read_text("/nowhere/text");
  EXPECT_EQ(text.status().code(), Code::kNotFound);
  EXPECT_THAT(text.status().message(), HasSubstr("/nowhere/text"));
}

TEST(Batches, DependOnSeedAndNumberAlone) {
  const auto text = counting(5000);
  BatchBuffer one(4, 16), other(4, 16);
  other.draw(text, 1, 99);
  const auto bytes = [](const Batch& batch) {
    return std::vector<std::uint8_t>(batch.inputs.begin(), batch.inputs.end());
  };
  const auto first = bytes(one.draw(text, 1, 0));
  EXPECT_EQ(first, bytes(other.draw(text, 1, 0)));
  EXPECT_NE(first, bytes(one.draw(text, 1, 1)));
  EXPECT_NE(first, bytes(one.draw(text, 2, 0)));
}

TEST(Batches, TargetsFollowTheirInputs) {
  const auto text = counting(300);
  BatchBuffer buffer(8, 16);
  for (std::uint64_t number = 0; number < 100; ++number) {
    const Batch batch = buffer.draw(text, 3, number);
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      ASSERT_EQ(batch.targets[i], static_cast<std::uint8_t>(batch.inputs[i] + 1));
    }
  }
}

TEST(Batches, DrawReachesBothEndsOfTheText) {
  const auto text = counting(20);
  BatchBuffer buffer(1, 16);
  std::vector<int> starts(4);
  for (std::uint64_t number = 0; number < 200; ++number) ++starts.at(buffer.draw(text, 1, number).inputs[0]);
  for (const int count : starts) EXPECT_GT(count, 20);
}

TEST(Batches, FollowingOnesCoverTheTextOnceWithoutItsRest) {
  const auto text = counting(16 * 5 + 9);
  BatchBuffer buffer(2, 16);
  std::vector<std::uint8_t> seen;
  for (Batch batch = buffer.follow(text, 0); !batch.inputs.empty();
       batch = buffer.follow(text, seen.size())) {
    seen.insert(seen.end(), batch.inputs.begin(), batch.inputs.end());
  }
  EXPECT_EQ(seen, counting(16 * 5));
}

}  // namespace
}  // namespace sluice::trainer
