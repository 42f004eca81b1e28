#include <signal.h>

#include <gtest/gtest.h>

#include "run_command.hpp"

namespace sluice::tools {
namespace {

using Arguments = std::vector<std::string>;

/// A million parameters of which a part fits: 12 MiB of state, the usual options and `more`.
Arguments bench(const ScratchDirectory& directory, const Arguments& more) {
  Arguments all = {"bench",    "--json", "--params",         "1048576", "--dir",           directory.path(),
                   "--layers", "4",      "--chunk-elements", "65536",   "--device-memory", "2MiB"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Bench, ReportsEachStepItsLimitsAndWhatWasInUse) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(bench(directory, {"--host-memory", "8MiB", "--steps", "3"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  ASSERT_EQ(report.at("steps").size(), 3U);
  for (const auto& step : report.at("steps")) {
    EXPECT_NEAR(step.at("seconds").get<double>(),
                step.at("forward_s").get<double>() + step.at("backward_s").get<double>() +
                    step.at("step_s").get<double>(),
                1e-9);
    EXPECT_GE(step.at("stall_s").get<double>(), 0);
    EXPECT_GT(step.at("bytes_read").get<std::uint64_t>(), 0U);
    EXPECT_GT(step.at("bytes_written").get<std::uint64_t>(), 0U);
  }
  EXPECT_GT(report.at("io_limit_s").get<double>(), 0);
  EXPECT_GT(report.at("compute_limit_s").get<double>(), 0);
  EXPECT_NEAR(report.at("efficiency").get<double>(),
              std::max(report.at("io_limit_s").get<double>(), report.at("compute_limit_s").get<double>()) /
                  report.at("median").at("step_s").get<double>(),
              1e-9);
  EXPECT_GT(report.at("params_per_s").get<double>(), 0);
  EXPECT_EQ(report.at("policy"), "bf16_split");
  EXPECT_EQ(report.at("optimizer").at("name"), "adamw");
  EXPECT_GE(report.at("peak_rss_bytes").get<std::uint64_t>(),
            report.at("reserved_bytes").get<std::uint64_t>());
  EXPECT_LE(report.at("reserved_bytes").get<std::uint64_t>(), 10U << 20);
  EXPECT_EQ(report.at("trainer_bytes"), 1048576 / 4 * 2);
  EXPECT_EQ(report.at("state_bytes"), 12 * 1048576);
  EXPECT_GE(report.at("hugetlb_bytes").get<std::uint64_t>(), 0U);
  EXPECT_FALSE(report.at("backend").get<std::string>().empty());
  EXPECT_FALSE(report.at("isa").get<std::string>().empty());
  EXPECT_TRUE(directory.names().empty()) << testing::PrintToString(directory.names());
}

TEST(Bench, StateInMemoryMovesNothingAndNeedsNoDrive) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(
      {"bench", "--json", "--params", "100000", "--layers", "3", "--chunk-elements", "16384", "--host-memory",
       "unlimited", "--device-memory", "unlimited", "--steps", "1", "--micro-batches", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  EXPECT_EQ(report.at("steps").at(0).at("bytes_read"), 0);
  EXPECT_EQ(report.at("steps").at(0).at("bytes_written"), 0);
}

TEST(Bench, SimulatedArithmeticTakesItsTime) {
  // Forward 2, backward 4 floating-point operations a parameter and token: 6 x 100000 x 512 / 1e9 = 0.307 s.
  const CommandResult result = run_command(
      {"bench", "--json", "--params", "100000", "--layers", "2", "--chunk-elements", "16384", "--host-memory",
       "unlimited", "--device-memory", "unlimited", "--steps", "1", "--compute-tflops", "0.001"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto step = result.json().at("steps").at(0);
  EXPECT_GE(step.at("forward_s").get<double>(), 0.102);
  EXPECT_GE(step.at("backward_s").get<double>(), 0.204);
}

TEST(Bench, OverlapIsHeldAgainstTheSlowerOfArithmeticAndDrives) {
  const ScratchDirectory directory;
  for (const char* const overlap : {"on", "off"}) {
    for (const char* const tflops : {"0", "0.05"}) {
      const CommandResult result =
          run_command(bench(directory, {"--host-memory", "8MiB", "--steps", "2", "--tokens", "512",
                                        "--overlap", overlap, "--compute-tflops", tflops}));
      ASSERT_EQ(result.exit_code, 0) << result.errors;
      const nlohmann::json report = result.json();
      const auto number = [&](const char* field) { return report.at(field).get<double>(); };
      EXPECT_EQ(report.at("overlap"), overlap);
      EXPECT_EQ(report.at("early_updates").get<std::uint64_t>() > 0, overlap == std::string("on"));
      EXPECT_EQ(report.at("redone_updates"), 0);
      // 4 operations a parameter and token.
      const double speed = std::stod(tflops) * 1e12;
      EXPECT_NEAR(number("backward_compute_s"), speed > 0 ? 4 * 1048576.0 * 512 / speed : 0, 1e-9);
      EXPECT_GT(number("backward_fetch_s"), 0);
      EXPECT_NEAR(number("last_layer_step_s"), std::max(number("io_limit_s"), number("compute_limit_s")) / 4,
                  1e-9);
      EXPECT_NEAR(number("overlap_limit_s"),
                  std::max(number("backward_compute_s"), number("backward_fetch_s") + number("io_limit_s")) +
                      number("last_layer_step_s"),
                  1e-9);
      EXPECT_NEAR(number("overlap_ratio"),
                  report.at("median").at("backward_and_step_s").get<double>() / number("overlap_limit_s"),
                  1e-9);
    }
  }
}

TEST(Bench, OfSeveralMicroBatchesTheLastBackwardAloneMayOverlapWithUpdates) {
  const CommandResult result = run_command(
      {"bench", "--json", "--params", "100000", "--layers", "3", "--chunk-elements", "16384", "--host-memory",
       "unlimited", "--device-memory", "unlimited", "--steps", "1", "--micro-batches", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json step = result.json().at("steps").at(0);
  EXPECT_GT(step.at("backward_and_step_s").get<double>(), step.at("step_s").get<double>());
  EXPECT_LT(step.at("backward_and_step_s").get<double>(),
            step.at("step_s").get<double>() + step.at("backward_s").get<double>());
}

TEST(Bench, UnsuitablePairIsBadUsageWithTheReason) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(
      bench(directory, {"--host-memory", "8MiB", "--policy", "moments8", "--optimizer", "adagrad"}));
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_NE(result.errors.find("policy moments8 with optimizer adagrad"), std::string::npos) << result.errors;
}

TEST(Bench, CommitsAreMeasuredBesideBareFlushesAndNothingStays) {
  const ScratchDirectory directory;
  const CommandResult result =
      run_command(bench(directory, {"--host-memory", "10MiB", "--steps", "4", "--commit-every", "1"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  ASSERT_EQ(report.at("commits").size(), 2U);
  for (const auto& commit : report.at("commits")) {
    EXPECT_GT(commit.at("commit_s").get<double>(), 0);
    EXPECT_GT(commit.at("bare_flushes_s").get<double>(), 0);
    EXPECT_GT(commit.at("record_bytes_written").get<std::uint64_t>(), 0U);
    EXPECT_GE(commit.at("state_bytes_written").get<std::uint64_t>(), 0U);
  }
  EXPECT_NEAR(report.at("commit_beyond_flushes_of_step").get<double>(),
              (report.at("commit_s").get<double>() - report.at("bare_flushes_s").get<double>()) /
                  report.at("median").at("seconds").get<double>(),
              1e-9);
  EXPECT_TRUE(directory.names().empty()) << testing::PrintToString(directory.names());
}

TEST(Bench, NonsenseIsBadUsage) {
  const ScratchDirectory directory;
  const std::vector<Arguments> bad = {{},
                                      {"--host-memory", "x"},
                                      {"--host-memory", "0"},
                                      {"--host-memory", "8MiB", "--steps", "0"},
                                      {"--host-memory", "8MiB", "--policy", "fp64"},
                                      {"--host-memory", "8MiB", "--policy", "frozen"},
                                      {"--host-memory", "8MiB", "--optimizer", "adamax"},
                                      {"--host-memory", "8MiB", "--momentum", "0.9"},
                                      {"--host-memory", "8MiB", "--beta1", "1"},
                                      {"--host-memory", "8MiB", "--overlap", "maybe"},
                                      {"--host-memory", "8MiB", "--micro-batches", "0"},
                                      {"--host-memory", "8MiB", "--compute-tflops", "-1"},
                                      {"--host-memory", "8MiB", "--compute-tflops", "nan"},
                                      {"--host-memory", "8MiB", "--commit-every", "6"},
                                      {"--host-memory", "8MiB", "--threads", "-1"}};
  for (const Arguments& more : bad) {
    const CommandResult result = run_command(bench(directory, more));
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(more) << result.errors;
  }
  EXPECT_EQ(run_command({"bench", "--params", "1", "--layers", "2", "--host-memory", "1MiB",
                         "--device-memory", "1MiB"})
                .exit_code,
            2);
}

TEST(Bench, BudgetThatIsTooSmallIsFailedWorkWithTheArithmetic) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(bench(directory, {"--host-memory", "64KiB"}));
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_NE(result.errors.find("ResourceExhausted"), std::string::npos) << result.errors;
  EXPECT_TRUE(directory.names().empty()) << testing::PrintToString(directory.names());
}

TEST(Bench, InterruptLeavesNothingBehind) {
  const ScratchDirectory directory;
  bool sent = false;
  const CommandResult result = run_command(bench(directory, {"--host-memory", "8MiB", "--steps", "1000000"}),
                                           [&sent](pid_t process, const std::string&) {
                                             if (sent) return;
                                             sent = true;
                                             kill(process, SIGINT);
                                           });
  EXPECT_EQ(result.exit_code, 130) << result.errors;
  EXPECT_NE(result.errors.find("nterrupt"), std::string::npos) << result.errors;
  EXPECT_TRUE(directory.names().empty()) << testing::PrintToString(directory.names());
}

}  // namespace
}  // namespace sluice::tools
