// What the kept state costs in loss: the same model learns the same text under each policy and each rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "support/temporary_directory.hpp"
#include "trainer/optimizer_numbers.hpp"
#include "trainer/trainer.hpp"

namespace sluice::trainer {
namespace {

/// Runs of a model of some 120 thousand parameters on 120 steps of the repository's text, out of core.
class PoliciesTest : public ::testing::Test {
 protected:
  TrainOptions options(Policy policy) const {
    TrainOptions options;
    options.text_path = SLUICE_DATA_DIR "/opticks.txt";
    options.directories = {directory_.path()};
    options.shape = {.layers = 2, .width = 64, .heads = 2, .context = 64};
    options.steps = 120;
    options.warmup_steps = 10;
    options.micro_batches = 1;
    options.gemm_threads = 1;
    options.chunk_elements = 16 << 10;
    options.policy = policy;
    if (policy == Policy::kFp16Master) options.loss_scale = std::nullopt;
    options.optimizer = with_number(options.optimizer, "lr", 6e-3);
    options.sample_bytes = 0;
    options.validate_bytes = 16 << 10;
    return options;
  }
  TrainReport train(const TrainOptions& options) const {
    const Result<TrainReport> report =
        trainer::train(options, {.after_step = [](const StepReport&) { return Status(); }});
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    if (!report.ok()) return {};
    EXPECT_GT(report->stats.record_bytes_written, 0U) << "the drive takes part";
    RecordProperty(
        std::string(policy_name(options.policy)) + "_" + std::string(kind_of(options.optimizer).name),
        std::to_string(report->validation_loss));
    return *report;
  }
  double loss(Policy policy) const { return train(options(policy)).validation_loss; }

  const sim::TemporaryDirectory directory_;
};

TEST_F(PoliciesTest, EightBitMomentsLearnNearlyAsMuchAsFp32Ones) {
  const TrainReport whole = train(options(Policy::kBf16Split));
  EXPECT_LT(whole.validation_loss, whole.unigram_entropy - 0.4) << "it has learnt";
  EXPECT_NEAR(loss(Policy::kMoments8), whole.validation_loss, 0.01);
}

TEST_F(PoliciesTest, SixteenBitMomentsAndWeightsLearnAsMuch) {
  const double whole = loss(Policy::kBf16Split);
  EXPECT_NEAR(loss(Policy::kBf16Moments), whole, 0.01);
  EXPECT_NEAR(loss(Policy::kFp16Master), whole, 0.01);
  EXPECT_NEAR(loss(Policy::kFp32), whole, 0.01);
}

TEST_F(PoliciesTest, EveryRuleLearnsUnderEveryPolicyThatSuitsIt) {
  const std::map<std::string_view, double> rates = {
      {"adamw", 6e-3}, {"adam", 6e-3}, {"adagrad", 2e-2}, {"lion", 1e-3}, {"sgd", 0.3}};
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const Policy policy : policies()) {
      if (policy == Policy::kFrozen || !sluice::validate(policy, kind.defaults).ok()) continue;
      SCOPED_TRACE(::testing::Message() << kind.name << ", " << policy_name(policy));
      TrainOptions options = this->options(policy);
      options.steps = 30;
      options.validate_bytes = 2 << 10;
      options.optimizer = with_number(kind.defaults, "lr", rates.at(kind.name));
      options.optimizer = with_number(options.optimizer, "momentum", 0.9);
      const TrainReport report = train(options);
      ASSERT_EQ(report.losses.size(), 30U);
      EXPECT_LT(report.losses.back(), report.losses.front() - 1.5);
    }
  }
}

TEST_F(PoliciesTest, PlacementNeverChangesABitOfAnyPolicy) {
  for (const Policy policy : policies()) {
    if (policy == Policy::kFrozen) continue;
    SCOPED_TRACE(policy_name(policy));
    TrainOptions options = this->options(policy);
    options.steps = 5;
    const TrainReport least = train(options);
    options.chunk_elements = 32 << 10;
    options.threads = 1;
    options.overlap = false;
    const TrainReport other = train(options);
    options.directories.clear();
    options.host_memory_bytes = kUnlimited;
    const Result<TrainReport> in_memory =
        trainer::train(options, {.after_step = [](const StepReport&) { return Status(); }});
    ASSERT_TRUE(in_memory.ok()) << in_memory.status().to_string();
    for (const TrainReport* report : {&least, &other}) {
      EXPECT_EQ(report->losses, in_memory->losses);
      EXPECT_EQ(report->fingerprint.state_xxh3, in_memory->fingerprint.state_xxh3);
    }
  }
}

}  // namespace
}  // namespace sluice::trainer
