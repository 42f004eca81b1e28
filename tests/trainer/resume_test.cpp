#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <tuple>
#include <utility>

#include "support/temporary_directory.hpp"
#include "trainer/text.hpp"
#include "trainer/trainer.hpp"

namespace sluice::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Runs of six steps of a model of some 65 thousand parameters, 5 chunks.
class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    for (const char* name : {"drive", "other"}) fs::create_directories(folder_ / name);
    std::ofstream text(folder_ / "text");
    for (std::uint64_t i = 0; i < 12'000; ++i) text << static_cast<char>('a' + random_below(26, 1, i));
  }

  TrainOptions options(std::uint64_t commit_every, const char* drive = "drive") const {
    TrainOptions options;
    options.text_path = folder_ / "text";
    options.directories = {folder_ / drive};
    options.shape = {.layers = 1, .width = 64, .heads = 2, .context = 16};
    options.steps = 6;
    options.warmup_steps = 2;
    options.sequences = 2;
    options.gemm_threads = 1;
    options.chunk_elements = 16 << 10;
    options.commit_every = commit_every;
    options.sample_bytes = 4;
    options.validate_bytes = 128;
    return options;
  }
  static TrainOptions resumed(TrainOptions options, std::uint64_t from = 0) {
    options.start = Start::kResume;
    options.resume_from = from;
    return options;
  }

  /// Trains to the end, or until that step was done.
  Result<TrainReport> train(const TrainOptions& options, std::uint64_t stop_after = 100) {
    steps_done_.clear();
    return trainer::train(options, {.on_start = [&](const StartReport& start) { start_ = start; },
                                    .after_step =
                                        [&](const StepReport& step) {
                                          steps_done_.push_back(step.step);
                                          return step.step == stop_after ? Status(Code::kAborted, "enough")
                                                                         : Status();
                                        }});
  }
  TrainReport finish(const TrainOptions& options) {
    const Result<TrainReport> report = train(options);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *report : TrainReport{};
  }
  const TrainReport& undisturbed() {
    if (!undisturbed_) {
      const auto said = std::pair(start_, steps_done_);
      undisturbed_ = finish(options(1, "other"));
      std::tie(start_, steps_done_) = said;
    }
    return *undisturbed_;
  }

  void expect_as_undisturbed(const TrainReport& report) {
    EXPECT_EQ(report.losses, undisturbed().losses);
    EXPECT_EQ(report.validation_loss, undisturbed().validation_loss);
    EXPECT_EQ(report.sample, undisturbed().sample);
    EXPECT_EQ(report.fingerprint.weights_xxh3, undisturbed().fingerprint.weights_xxh3);
    EXPECT_EQ(report.fingerprint.state_xxh3, undisturbed().fingerprint.state_xxh3);
    EXPECT_EQ(report.user_bytes_xxh3, undisturbed().user_bytes_xxh3);
  }

  const sim::TemporaryDirectory temporary_;
  const fs::path folder_ = temporary_.path();
  StartReport start_;
  std::vector<std::uint64_t> steps_done_;
  std::optional<TrainReport> undisturbed_;
};

TEST_F(ResumeTest, CommitsChangeNoBit) {
  TrainOptions scratch = options(0);
  scratch.directories.clear();
  const TrainReport in_memory = finish(scratch);
  EXPECT_EQ(in_memory.losses, undisturbed().losses);
  EXPECT_EQ(in_memory.fingerprint.state_xxh3, undisturbed().fingerprint.state_xxh3);
  EXPECT_EQ(in_memory.user_bytes_xxh3, std::nullopt);
  EXPECT_EQ(undisturbed().stats.commits, 6U);
  EXPECT_EQ(undisturbed().stats.steps_since_commit, 0U);
}

TEST_F(ResumeTest, ResumedRunEndsAsAnUndisturbedOneWhereverItStopped) {
  for (const std::uint64_t every : {1, 4}) {
    for (std::uint64_t stop = 1; stop <= 6; ++stop) {
      SCOPED_TRACE(::testing::Message() << "commit every " << every << ", stopped after " << stop);
      const Status stopped = train(options(every), stop).status();
      EXPECT_EQ(stopped.code(), Code::kAborted);
      EXPECT_THAT(stopped.message(), HasSubstr("enough; steps 1 to " + std::to_string(stop)));
      expect_as_undisturbed(finish(resumed(options(every))));
      EXPECT_EQ(start_.steps_done, stop);
      EXPECT_EQ(steps_done_.size(), 6 - stop);
      fs::remove_all(folder_ / "drive");
      fs::create_directory(folder_ / "drive");
    }
  }
}

TEST_F(ResumeTest, FinishedRunIsReportedAgainWithoutTraining) {
  finish(options(2));
  const TrainReport again = finish(resumed(options(2)));
  expect_as_undisturbed(again);
  EXPECT_TRUE(again.step_seconds.empty());
  EXPECT_TRUE(steps_done_.empty());
  EXPECT_EQ(again.start.steps_done, 6U);
  EXPECT_TRUE(again.start.differences.empty()) << ::testing::PrintToString(again.start.differences);
  EXPECT_EQ(again.stats.commits, 0U);
}

TEST_F(ResumeTest, ResumeStartsAtTheBeginningWhereThereIsNoCommit) {
  const TrainReport report = finish(resumed(options(2)));
  EXPECT_EQ(report.start.commit, std::nullopt);
  expect_as_undisturbed(report);
}

TEST_F(ResumeTest, OlderCommitMayBeResumedFromWhileItIsKept) {
  TrainOptions keeps = options(2);
  keeps.keep_commits = 3;
  const std::uint64_t last = *finish(keeps).commit;
  expect_as_undisturbed(finish(resumed(keeps, last - 1)));
  EXPECT_EQ(start_.commit, last - 1);
  EXPECT_EQ(start_.steps_done, 4U);
  const Status unknown = train(resumed(keeps, last + 100)).status();
  EXPECT_EQ(unknown.code(), Code::kNotFound) << unknown.to_string();
}

TEST_F(ResumeTest, StoreWithCommitsIsRefusedWithoutResume) {
  finish(options(3));
  for (const std::uint64_t every : {0, 3}) {
    const Status refused = train(options(every)).status();
    EXPECT_EQ(refused.code(), Code::kAlreadyExists) << refused.to_string();
  }
  expect_as_undisturbed(finish(resumed(options(3))));
}

TEST_F(ResumeTest, AnotherRunIsRefusedAndTheStoreStays) {
  EXPECT_FALSE(train(options(1), 2).ok());
  TrainOptions other = resumed(options(1));
  other.seed = 9;
  const Status refused = train(other).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("seed is 9, committed with 1"));
  expect_as_undisturbed(finish(resumed(options(1))));
  EXPECT_EQ(start_.steps_done, 2U);
}

TEST_F(ResumeTest, AnotherPlacementGoesOnWithTheSameBits) {
  EXPECT_FALSE(train(options(1), 3).ok());
  TrainOptions other = resumed(options(2));
  other.host_memory_bytes = kUnlimited;
  other.chunk_elements = 32 << 10;
  other.keep_commits = 2;
  expect_as_undisturbed(finish(other));
  EXPECT_EQ(start_.steps_done, 3U);
  EXPECT_TRUE(start_.rewritten);
}

TEST_F(ResumeTest, EveryRulePolicyAndScalingGoesOnAsIfNothingHadStoppedIt) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    const auto with = [&](TrainOptions options) {
      options.optimizer = kind.defaults;
      options.policy = kind.name == "adagrad" ? Policy::kBf16Moments
                       : kind.name == "sgd"   ? Policy::kFp16Master
                                              : Policy::kMoments8;
      options.loss_scale = std::nullopt;
      options.decline = Decline::kLinear;
      options.max_norm = kNoClipping;
      return options;
    };
    SCOPED_TRACE(kind.name);
    const TrainReport whole = finish(with(options(1, "other")));
    EXPECT_FALSE(train(with(options(2)), 3).ok());
    const TrainReport rest = finish(resumed(with(options(2))));
    EXPECT_EQ(start_.steps_done, 3U);
    EXPECT_EQ(rest.losses, whole.losses);
    EXPECT_EQ(rest.fingerprint.state_xxh3, whole.fingerprint.state_xxh3);
    EXPECT_EQ(rest.user_bytes_xxh3, whole.user_bytes_xxh3);
    for (const char* const name : {"drive", "other"}) {
      fs::remove_all(folder_ / name);
      fs::create_directory(folder_ / name);
    }
  }
}

TEST_F(ResumeTest, RunWithoutCommitsHasNoRoomForThem) {
  TrainOptions endless = options(0);
  endless.steps = std::uint64_t{1} << 40;
  EXPECT_EQ(train(endless, 1).status().message(), "enough");
}

TEST_F(ResumeTest, OptionsOfCommitsAreCheckedByName) {
  const auto refusal = [&](TrainOptions options) {
    const Status status = train(options).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(refusal(resumed(options(0))), HasSubstr("commit-every is 0"));
  TrainOptions bad = options(1);
  bad.directories.clear();
  EXPECT_THAT(refusal(bad), HasSubstr("without a directory"));
  bad = options(1);
  bad.keep_commits = 16;
  EXPECT_THAT(refusal(bad), HasSubstr("keep-commits is 16; accepted: 1..15"));
  bad = options(1);
  bad.steps = kCommittedStepsMax + 1;
  EXPECT_THAT(refusal(bad), HasSubstr("at most 1048576"));
}

}  // namespace
}  // namespace sluice::trainer
