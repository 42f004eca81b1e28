#include "trainer/trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <ostream>
#include <set>
#include <vector>

#include "support/temporary_directory.hpp"
#include "trainer/optimizer_numbers.hpp"
#include "trainer/text.hpp"

namespace sluice::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const TrainEvents kGoOn{.after_step = [](const StepReport&) { return Status(); }};

enum class Host : std::uint8_t { kLeast, kBetween, kUnlimited };

struct Setting {
  Host host = Host::kUnlimited;
  IoBackend backend = IoBackend::kAuto;
  std::uint32_t threads = 0;
  std::uint32_t chunk_elements = 64 << 10;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  constexpr const char* kHosts[] = {"least", "between", "unlimited"};
  constexpr const char* kBackends[] = {"auto", "uring", "threads"};
  return out << "host " << kHosts[static_cast<int>(setting.host)] << ", backend "
             << kBackends[static_cast<int>(setting.backend)] << ", threads " << setting.threads << ", chunk "
             << setting.chunk_elements;
}

/// Trains a model of some 620 thousand parameters, 10 chunks of 64 Ki, on a text of made-up sentences.
class TrainTest : public ::testing::Test {
 protected:
  TrainTest() {
    fs::create_directories(folder_ / "drive");
    constexpr const char* kWords[] = {"light ",   "rays ",  "the ", "of ",    "glass ",
                                      "colours ", "bends ", "a ",   "prism. "};
    std::ofstream text(folder_ / "text");
    for (std::uint64_t i = 0; i < 12'000; ++i) text << kWords[random_below(std::size(kWords), 5, i)];
  }
  TrainOptions options() const {
    TrainOptions options;
    options.text_path = folder_ / "text";
    options.directories = {folder_ / "drive"};
    options.shape = {.layers = 3, .width = 128, .heads = 2, .context = 32};
    options.steps = 4;
    options.warmup_steps = 1;
    options.sequences = 4;
    options.gemm_threads = 1;
    options.chunk_elements = 64 << 10;
    options.sample_bytes = 4;
    options.validate_bytes = 512;
    return options;
  }

  TrainOptions options(const Setting& setting) {
    TrainOptions options = this->options();
    options.host_memory_bytes = host_bytes(setting.host, setting.chunk_elements);
    options.backend = setting.backend;
    options.threads = setting.threads;
    options.chunk_elements = setting.chunk_elements;
    return options;
  }

  std::optional<std::uint64_t> host_bytes(Host host, std::uint32_t chunk_elements) {
    if (host == Host::kLeast) return std::nullopt;
    if (host == Host::kUnlimited) return kUnlimited;
    auto& between = between_[chunk_elements];
    if (between == 0) {
      const SealReport layout = train({.chunk_elements = chunk_elements}).layout;
      between = (layout.least_host_bytes + layout.host_bytes) / 2;
    }
    return between;
  }

  TrainReport train(const TrainOptions& options) const {
    const Result<TrainReport> report = trainer::train(options, kGoOn);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(fs::is_empty(folder_ / "drive")) << "a scratch store goes with its run";
    return report.ok() ? *report : TrainReport{};
  }
  TrainReport train(const Setting& setting) { return train(options(setting)); }

  void expect_same_as_reference(const Setting& setting) {
    SCOPED_TRACE(::testing::PrintToString(setting));
    if (reference_.losses.empty()) {
      TrainOptions in_memory = options();
      in_memory.directories.clear();
      reference_ = train(in_memory);
    }
    const TrainOptions options = this->options(setting);
    const Result<TrainReport> report = trainer::train(options, kGoOn);
    if (setting.backend == IoBackend::kUring && report.status().code() == Code::kUnavailable) {
      GTEST_LOG_(WARNING) << "left out, io_uring is forbidden here: " << report.status().message();
      return;
    }
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    expect_same_bits(*report, reference_);
    if (options.chunk_elements < kOneChunk && setting.host == Host::kLeast) {
      EXPECT_GT(report->stats.record_bytes_written, 0U) << "the drive takes part";
    }
  }

  static void expect_same_bits(const TrainReport& actual, const TrainReport& expected) {
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_EQ(actual.validation_loss, expected.validation_loss);
    EXPECT_EQ(actual.sample, expected.sample);
    EXPECT_EQ(actual.fingerprint.weights_xxh3, expected.fingerprint.weights_xxh3);
    EXPECT_EQ(actual.fingerprint.state_xxh3, expected.fingerprint.state_xxh3);
  }

  static constexpr std::uint32_t kOneChunk = 1 << 20;
  const sim::TemporaryDirectory temporary_;
  const fs::path folder_ = temporary_.path();
  TrainReport reference_;  // of a run without drives
  std::map<std::uint32_t, std::uint64_t> between_;
};

// Every pair of settings is in one of these.
TEST_F(TrainTest, PlacementNeverChangesABit) {
  constexpr auto kUring = IoBackend::kUring, kThreads = IoBackend::kThreads;
  constexpr std::uint32_t kSmall = 64 << 10, kLarge = 1 << 20, kOne = 1, kAll = 0;
  for (const Setting& setting : {Setting{Host::kLeast, kUring, kOne, kSmall},
                                 {Host::kLeast, kThreads, kAll, kLarge},
                                 {Host::kBetween, kUring, kAll, kLarge},
                                 {Host::kBetween, kThreads, kOne, kSmall},
                                 {Host::kUnlimited, kUring, kOne, kLarge},
                                 {Host::kUnlimited, kThreads, kAll, kSmall}}) {
    expect_same_as_reference(setting);
  }
}

TEST_F(TrainTest, PlacementNeverChangesABitInTheWholeGrid) {
  if (std::getenv("SLUICE_LONG_TESTS") == nullptr) GTEST_SKIP() << "set SLUICE_LONG_TESTS to run it";
  for (const Host host : {Host::kLeast, Host::kBetween, Host::kUnlimited}) {
    for (const IoBackend backend : {IoBackend::kUring, IoBackend::kThreads}) {
      for (const std::uint32_t threads : {1U, 2U, 0U}) {
        for (const std::uint32_t chunk_elements : {16U << 10, 64U << 10, 1U << 20}) {
          expect_same_as_reference({host, backend, threads, chunk_elements});
        }
      }
    }
  }
}

TEST_F(TrainTest, LeastHostMemoryIsWhatSealCallsTheLeast) {
  const TrainReport report = train({.host = Host::kLeast});
  EXPECT_EQ(report.host_memory_bytes, report.layout.least_host_bytes);
  EXPECT_LT(report.host_memory_bytes, report.stats.state_bytes / 2);
  EXPECT_GT(report.stats.record_bytes_written, 0U);

  TrainOptions one_less = options();
  one_less.host_memory_bytes = report.host_memory_bytes - 1;
  const Status refusal = trainer::train(one_less, kGoOn).status();
  EXPECT_EQ(refusal.code(), Code::kResourceExhausted);
  EXPECT_THAT(refusal.message(), HasSubstr(std::to_string(report.host_memory_bytes)));
}

TEST_F(TrainTest, DeviceMemoryChangesNoBit) {
  TrainOptions options = this->options();
  options.host_memory_bytes = std::nullopt;
  options.device_memory_bytes = kUnlimited;
  const TrainReport all_weights = train(options);
  // Leases may hold half the budget: one part of bf16 weights, each tensor on its 256 bytes.
  options.device_memory_bytes = 2 * (2 * largest_part_elements(options.shape) + 8 * 256);
  const TrainReport one_part = train(options);
  expect_same_bits(one_part, all_weights);
  EXPECT_GT(one_part.stats.weight_bytes_read, all_weights.stats.weight_bytes_read);
}

TEST_F(TrainTest, UndoChangesNoResult) {
  TrainOptions options = this->options();
  options.host_memory_bytes = std::nullopt;
  const TrainReport with_undo = train(options);
  options.undo = Undo::kOff;
  const TrainReport without = train(options);
  expect_same_bits(without, with_undo);
  EXPECT_LT(without.stats.nvme_reserved_bytes, with_undo.stats.nvme_reserved_bytes);
}

TEST_F(TrainTest, PlacementNeverChangesABitOfFp32) {
  TrainOptions options = this->options();
  options.policy = Policy::kFp32;
  options.host_memory_bytes = kUnlimited;
  const TrainReport in_memory = train(options);
  options.host_memory_bytes = std::nullopt;
  expect_same_bits(train(options), in_memory);
}

TEST_F(TrainTest, SeedDecidesTheRun) {
  TrainOptions options = this->options();
  const TrainReport one = train(options);
  options.seed = 2;
  const TrainReport other = train(options);
  EXPECT_NE(one.losses, other.losses);
  EXPECT_NE(one.fingerprint.state_xxh3, other.fingerprint.state_xxh3);
}

TEST_F(TrainTest, LearnsMoreThanTheFrequencyOfBytes) {
  TrainOptions options = this->options();
  options.host_memory_bytes = std::nullopt;
  options.steps = 40;
  options.warmup_steps = 5;
  options.optimizer = with_number(options.optimizer, "lr", 4e-3);
  options.validate_bytes = 4096;
  const TrainReport report = train(options);
  EXPECT_LT(report.validation_loss, report.unigram_entropy - 1);
  EXPECT_EQ(report.stats.steps, 40U);
  EXPECT_EQ(report.stats.skipped_steps, 0U);
}

TEST_F(TrainTest, StopsAfterTheStepThatIsAnsweredWithAnErrorAndLeavesNoFiles) {
  std::uint64_t steps = 0;
  const auto stop_at_two = [&](const StepReport& step) {
    steps = step.step;
    return steps == 2 ? Status(Code::kAborted, "enough") : Status();
  };
  const Status status = trainer::train(options(), {.after_step = stop_at_two}).status();
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_EQ(steps, 2U);
  EXPECT_TRUE(fs::is_empty(folder_ / "drive"));
}

TEST_F(TrainTest, RefusesOptionsByNameBeforeAnyWork) {
  TrainOptions options = this->options();
  options.steps = 0;
  EXPECT_EQ(trainer::train(options, kGoOn).status().message(), "steps is 0; accepted: 1 and more");
  options = this->options();
  options.shape.context = 60'000;
  EXPECT_EQ(trainer::train(options, kGoOn).status().code(), Code::kInvalidArgument);
  options = this->options();
  options.optimizer = Sgd{.momentum = 2};
  EXPECT_THAT(trainer::train(options, kGoOn).status().message(), HasSubstr("sgd momentum"));
  options.optimizer = Adagrad{};
  options.policy = Policy::kMoments8;
  EXPECT_THAT(trainer::train(options, kGoOn).status().message(),
              HasSubstr("moments8 with optimizer adagrad"));
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    options = this->options();
    options.max_norm = bad;
    EXPECT_THAT(trainer::train(options, kGoOn).status().message(), HasSubstr("max-norm"));
    options = this->options();
    options.loss_scale = bad;
    EXPECT_THAT(trainer::train(options, kGoOn).status().message(), HasSubstr("loss-scale"));
    options.loss_scale = 3.5e38;
    EXPECT_THAT(trainer::train(options, kGoOn).status().message(), HasSubstr("loss-scale"));
    options = this->options();
    options.min_lr = bad - 1;
    EXPECT_THAT(trainer::train(options, kGoOn).status().message(), HasSubstr("min-lr"));
  }
}

// Gradients that are doubled so often and divided again lose no bit, and none is too large.
TEST_F(TrainTest, PowerOfTwoAsLossScaleChangesNoBit) {
  TrainOptions options = this->options();
  const TrainReport plain = train(options);
  options.loss_scale = 1024;
  const TrainReport scaled = train(options);
  expect_same_bits(scaled, plain);
  EXPECT_EQ(scaled.loss_scale, 1024);
}

TEST_F(TrainTest, DynamicLossScaleFallsUntilGradientsAreFiniteAndNothingIsLearntBefore) {
  TrainOptions options = this->options();
  options.steps = 3;
  options.loss_scale = std::nullopt;
  const TrainReport dynamic = train(options);
  EXPECT_EQ(dynamic.stats.skipped_steps, 0U);
  EXPECT_EQ(dynamic.loss_scale, 65536);

  options.loss_scale = 0x1p127;
  std::vector<bool> skipped;
  const auto note = [&](const StepReport& step) {
    skipped.push_back(step.skipped);
    return Status();
  };
  const Result<TrainReport> never = trainer::train(options, {.after_step = note});
  ASSERT_TRUE(never.ok()) << never.status().to_string();
  EXPECT_EQ(never->stats.skipped_steps, 3U);
  EXPECT_EQ(skipped, std::vector<bool>(3, true));
  options.steps = 1;
  options.loss_scale = 1;
  options.optimizer = with_number(options.optimizer, "lr", 0);
  EXPECT_EQ(train(options).fingerprint.weights_xxh3, never->fingerprint.weights_xxh3);
}

TEST_F(TrainTest, UpdatesDuringBackwardChangeNoBit) {
  TrainOptions options = this->options();
  options.host_memory_bytes = std::nullopt;
  options.max_norm = kNoClipping;
  const TrainReport with = train(options);
  EXPECT_GT(with.stats.early_updates, 0U);
  options.overlap = false;
  const TrainReport without = train(options);
  expect_same_bits(without, with);
  EXPECT_EQ(without.stats.early_updates, 0U);
}

TEST_F(TrainTest, EachDeclineOfTheLearningRateIsAnotherRun) {
  std::set<std::uint64_t> states;
  for (const Decline decline : kDeclines) {
    TrainOptions options = this->options();
    options.decline = decline;
    states.insert(train(options).fingerprint.state_xxh3);
  }
  EXPECT_EQ(states.size(), std::size(kDeclines));
}

}  // namespace
}  // namespace sluice::trainer
