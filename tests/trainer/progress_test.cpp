#include "trainer/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <variant>

namespace sluice::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint8_t kText[] = "a text to learn";
constexpr std::size_t kCountOfSettings = 5;  // its word in the bytes
constexpr std::uint64_t kSettingsOfAdamW = 20;

Progress start(const TrainOptions& options = {}) { return {options, kText}; }

// After two steps.
std::vector<std::byte> two_steps() {
  Progress progress = start();
  progress.add(5.5);
  progress.add(-0.0);
  return progress.encode();
}

std::uint64_t word(const std::vector<std::byte>& bytes, std::size_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

std::vector<std::byte> with_word(std::vector<std::byte> bytes, std::size_t index, std::uint64_t value) {
  std::memcpy(bytes.data() + index * sizeof(value), &value, sizeof(value));
  return bytes;
}

TEST(Progress, GoesOnWithTheLossesOfAllStepsBitForBit) {
  const std::vector<std::byte> bytes = two_steps();
  Progress progress = start();
  const Status status = progress.resume(bytes);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(progress.steps_done(), 2U);
  EXPECT_EQ(progress.encode(), bytes);
  progress.add(3);
  EXPECT_THAT(progress.losses(), ElementsAre(5.5, 0, 3));
}

TEST(Progress, RoomTakesAllStepsAndChangesSeldom) {
  TrainOptions options;
  options.steps = 40;
  Progress progress = start(options);
  for (int i = 0; i < 40; ++i) progress.add(1);
  EXPECT_LE(progress.encode().size(), Progress::room_bytes(40));
  EXPECT_EQ(Progress::room_bytes(1), Progress::room_bytes(8000));
  EXPECT_GE(Progress::room_bytes(kCommittedStepsMax), 8 * kCommittedStepsMax);
}

TEST(Progress, AnotherRunIsRefusedByTheNameOfEachSettingThatDiffers) {
  struct Change {
    const char* name;
    std::function<void(TrainOptions&)> make;
  };
  for (const Change& change :
       {Change{"layers is 7, committed with 6", [](auto& o) { o.shape.layers = 7; }},
        {"width is 512, committed with 256", [](auto& o) { o.shape.width = 512; }},
        {"heads is 2, committed with 4", [](auto& o) { o.shape.heads = 2; }},
        {"context is 64, committed with 128", [](auto& o) { o.shape.context = 64; }},
        {"seed is 2, committed with 1", [](auto& o) { o.seed = 2; }},
        {"batch is 8, committed with 4", [](auto& o) { o.sequences = 8; }},
        {"micro-batches is 1, committed with 2", [](auto& o) { o.micro_batches = 1; }},
        {"steps is 501, committed with 500", [](auto& o) { o.steps = 501; }},
        {"lr is 0.5, committed with 0.003", [](auto& o) { std::get<AdamW>(o.optimizer).lr = 0.5; }},
        {"beta2 is 0.5, committed with 0.95", [](auto& o) { std::get<AdamW>(o.optimizer).beta2 = 0.5; }},
        {"weight_decay is 0, committed with 0.1",
         [](auto& o) { std::get<AdamW>(o.optimizer).weight_decay = 0; }},
        {"optimizer is sgd, committed with adamw", [](auto& o) { o.optimizer = Sgd{.lr = 3e-3}; }},
        {"optimizer is adam, committed with adamw", [](auto& o) { o.optimizer = Adam{.lr = 3e-3}; }},
        {"schedule is linear, committed with cosine", [](auto& o) { o.decline = Decline::kLinear; }},
        {"min-lr is 0, committed with 0.1", [](auto& o) { o.min_lr = 0; }},
        {"warmup is 0, committed with 40", [](auto& o) { o.warmup_steps = 0; }},
        {"max-norm is inf, committed with 1", [](auto& o) { o.max_norm = kNoClipping; }}}) {
    TrainOptions options;
    change.make(options);
    Progress progress = start(options);
    const Status status = progress.resume(two_steps());
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << change.name;
    EXPECT_THAT(status.message(), HasSubstr(change.name));
    EXPECT_EQ(status.message().find("committed with"), status.message().rfind("committed with"));
    EXPECT_EQ(progress.steps_done(), 0U);
  }
  constexpr std::uint8_t kOther[] = "another to lear";
  Progress other({}, kOther);
  EXPECT_THAT(other.resume(two_steps()).message(), HasSubstr("text's training part, XXH3-64"));
}

TEST(Progress, WhatChangesNoBitMayDiffer) {
  TrainOptions options;
  options.host_memory_bytes = 1;
  options.threads = 3;
  options.chunk_elements = 16384;
  options.overlap = false;
  options.keep_commits = 7;
  options.commit_every = 9;
  options.sample_bytes = options.validate_bytes = 0;
  EXPECT_TRUE(start(options).resume(two_steps()).ok());
}

TEST(Progress, TruncatedAndLongerBytesAreRefused) {
  const std::vector<std::byte> bytes = two_steps();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(start().resume(std::span(bytes).first(length)).code(), Code::kFailedPrecondition) << length;
  }
  std::vector<std::byte> longer = bytes;
  for (int i = 0; i < 16; ++i) {
    longer.emplace_back();
    EXPECT_EQ(start().resume(longer).code(), Code::kFailedPrecondition) << longer.size();
  }
}

TEST(Progress, ForeignBytesAndNewerVersionsAreRefused) {
  const std::vector<std::byte> bytes = two_steps();
  EXPECT_THAT(start().resume(with_word(bytes, 0, 1)).message(), HasSubstr("not those of this trainer"));
  const Status newer = start().resume(with_word(bytes, 1, 3));
  EXPECT_EQ(newer.code(), Code::kUnimplemented);
  EXPECT_THAT(newer.message(), HasSubstr("version 3"));
}

TEST(Progress, CountsThatTheBytesDoNotBearAreRefused) {
  const std::vector<std::byte> bytes = two_steps();
  const std::size_t count = bytes.size() / 8 - 3;
  ASSERT_EQ(word(bytes, count), 2U);
  for (const std::uint64_t losses : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3},
                                     std::uint64_t{1} << 61, std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_EQ(start().resume(with_word(bytes, count, losses)).code(), Code::kFailedPrecondition) << losses;
  }
  TrainOptions one_step;
  one_step.steps = 1;
  Progress too_far = start(one_step);
  too_far.add(1);
  too_far.add(1);
  EXPECT_THAT(start(one_step).resume(too_far.encode()).message(), HasSubstr("2 steps done of 1"));
}

TEST(Progress, CountOfSettingsThatTheBytesDoNotBearIsRefused) {
  const std::vector<std::byte> bytes = two_steps();
  ASSERT_EQ(word(bytes, kCountOfSettings), kSettingsOfAdamW);
  for (std::uint64_t count = 0; count <= bytes.size() / 8; ++count) {
    if (count == kSettingsOfAdamW) continue;
    EXPECT_FALSE(start().resume(with_word(bytes, kCountOfSettings, count)).ok()) << count;
  }
  EXPECT_FALSE(start().resume(with_word(bytes, kCountOfSettings, std::uint64_t{1} << 63)).ok());
}

// The bytes of version 1: the settings that it had, without a count of them and a loss scale.
std::vector<std::byte> version1(const std::vector<std::byte>& bytes) {
  constexpr std::size_t kFirstSetting = kCountOfSettings + 1, kSettings = 13;
  const auto words = [&](std::size_t first, std::size_t end) {
    return std::pair(bytes.begin() + static_cast<std::ptrdiff_t>(8 * first),
                     bytes.begin() + static_cast<std::ptrdiff_t>(8 * end));
  };
  std::vector<std::byte> old;
  for (const auto& [first, end] : {words(0, 2), words(kFirstSetting, kFirstSetting + kSettings),
                                   words(kFirstSetting + kSettingsOfAdamW, bytes.size() / 8)})
    old.insert(old.end(), first, end);
  return with_word(old, 1, 1);
}

TEST(Progress, CommitsOfVersion1AreGoneOnFromWithWhatTheyCouldNotTell) {
  Progress progress = start();
  const Status status = progress.resume(version1(two_steps()));
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(progress.encode(), two_steps());
  TrainOptions other;
  other.decline = Decline::kConstant;
  EXPECT_THAT(start(other).resume(version1(two_steps())).message(),
              HasSubstr("schedule is constant, committed with cosine"));
  other = {};
  other.optimizer = Lion{.lr = 3e-3};
  EXPECT_THAT(start(other).resume(version1(two_steps())).message(),
              HasSubstr("optimizer is lion, committed with adamw"));
  const std::vector<std::byte> old = version1(two_steps());
  for (std::size_t length = 0; length < old.size(); ++length)
    EXPECT_EQ(start().resume(std::span(old).first(length)).code(), Code::kFailedPrecondition) << length;
}

TEST(Progress, DynamicLossScaleGoesOnWhereItWas) {
  TrainOptions options;
  options.loss_scale = std::nullopt;
  Progress progress = start(options);
  EXPECT_EQ(progress.loss_scale(), 65536);
  progress.add(1);
  ASSERT_TRUE(progress.update_scale(LossScaler::Outcome::kSkipped).ok());
  progress.add(1);
  ASSERT_TRUE(progress.update_scale(LossScaler::Outcome::kGood).ok());
  Progress resumed = start(options);
  ASSERT_TRUE(resumed.resume(progress.encode()).ok());
  EXPECT_EQ(resumed.loss_scale(), 32768);
  EXPECT_EQ(resumed.encode(), progress.encode());
}

TEST(Progress, AnotherScalingMayGoOn) {
  TrainOptions dynamic;
  dynamic.loss_scale = std::nullopt;
  Progress begun = start(dynamic);
  ASSERT_TRUE(begun.resume(two_steps()).ok());
  EXPECT_EQ(begun.loss_scale(), 65536) << "of a commit with a fixed scale nothing is known";
  TrainOptions fixed;
  fixed.loss_scale = 8;
  Progress ended = start(fixed);
  ASSERT_TRUE(ended.resume(start(dynamic).encode()).ok());
  EXPECT_EQ(ended.loss_scale(), 8);
  ASSERT_TRUE(ended.update_scale(LossScaler::Outcome::kSkipped).ok());
  EXPECT_EQ(ended.loss_scale(), 8);
}

TEST(Progress, LossScaleThatNoneCanBeIsRefused) {
  TrainOptions options;
  options.loss_scale = std::nullopt;
  const std::vector<std::byte> bytes = start(options).encode();
  for (const double bad :
       {0.5, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const Status refused = start(options).resume(with_word(bytes, 2, std::bit_cast<std::uint64_t>(bad)));
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << bad;
    EXPECT_THAT(refused.message(), HasSubstr("loss scale"));
  }
  EXPECT_FALSE(start(options).resume(with_word(bytes, 3, std::uint64_t{1} << 32)).ok());
}

}  // namespace
}  // namespace sluice::trainer
