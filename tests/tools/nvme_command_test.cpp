#include <signal.h>

#include <algorithm>

#include <gtest/gtest.h>

#include "run_command.hpp"

namespace sluice::tools {
namespace {

using Arguments = std::vector<std::string>;

/// A small and fast test, but for the options that `more` gives.
Arguments nvme(const ScratchDirectory& directory, const Arguments& more) {
  Arguments all = {"nvme", "--json", "--dir", directory.path()};
  const std::vector<Arguments> usual = {
      {"--size", "4MiB"}, {"--block", "64KiB"}, {"--depth", "4"}, {"--seconds", "0.05"}};
  for (const Arguments& option : usual) {
    if (std::find(more.begin(), more.end(), option[0]) == more.end())
      all.insert(all.end(), option.begin(), option.end());
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Nvme : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Nvme, MeasuresAndVerifiesAndLeavesNothingBehind) {
  const auto [backend, op] = GetParam();
  const ScratchDirectory directory;
  const CommandResult result = run_command(nvme(directory, {"--backend", backend, "--op", op, "--verify"}));
  if (std::string(backend) == "uring" && result.exit_code == 1 &&
      result.errors.find("io_uring") != std::string::npos) {
    GTEST_SKIP() << result.errors;
  }
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  EXPECT_EQ(report.at("op"), op);
  EXPECT_GT(report.at("gib_per_s").get<double>(), 0);
  EXPECT_LE(report.at("gib_per_s_min").get<double>(), report.at("gib_per_s").get<double>());
  const auto& latency = report.at("latency_us");
  EXPECT_GT(latency.at("p50").get<double>(), 0);
  EXPECT_LE(latency.at("p50").get<double>(), latency.at("p99").get<double>());
  EXPECT_LE(latency.at("p99").get<double>(), latency.at("max").get<double>());
  EXPECT_GT(report.at("cpu_seconds_per_gib").get<double>(), 0);
  EXPECT_EQ(report.at("block_bytes"), 65536);
  EXPECT_EQ(report.at("depth"), 4);
  if (std::string(backend) != "auto") {
    EXPECT_EQ(report.at("backend"), backend);
  }
  EXPECT_TRUE(report.at("direct").is_boolean());
  EXPECT_TRUE(report.at("registered_buffers").is_boolean());
  EXPECT_EQ(report.at("verified"), true);
  EXPECT_TRUE(directory.names().empty());
}

INSTANTIATE_TEST_SUITE_P(EveryBackend, Nvme,
                         testing::Combine(testing::Values("auto", "uring", "threads"),
                                          testing::Values("read", "write", "mixed")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
                         });

TEST(NvmeCommand, TwoDirectoriesShareTheSize) {
  const ScratchDirectory first;
  const ScratchDirectory second;
  const CommandResult result =
      run_command(nvme(first, {"--dir", second.path(), "--op", "mixed", "--verify"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.json().at("drives"), 2);
}

TEST(NvmeCommand, TuningMeasuresWithTheFastestThatWasTried) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(nvme(directory, {"--tune", "--seconds", "0.02"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  const auto& tuned = report.at("tuned");
  ASSERT_GE(tuned.size(), 5U);
  for (const auto& point : tuned) EXPECT_LE(point.at("gib_per_s"), tuned.at(0).at("gib_per_s"));
  EXPECT_EQ(report.at("block_bytes"), tuned.at(0).at("block_bytes"));
  EXPECT_EQ(report.at("depth"), tuned.at(0).at("depth"));
}

TEST(NvmeCommand, NonsenseIsBadUsage) {
  const ScratchDirectory directory;
  const std::vector<Arguments> bad = {{"--size", "0"},           {"--size", "32KiB"},
                                      {"--size", "unlimited"},   {"--size", "x"},
                                      {"--block", "0"},          {"--block", "1000"},
                                      {"--block", "4097"},       {"--block", "2GiB"},
                                      {"--depth", "0"},          {"--depth", "-1"},
                                      {"--depth", "1000000000"}, {"--depth", "99999999999999"},
                                      {"--seconds", "0"},        {"--seconds", "-1"},
                                      {"--seconds", "nan"},      {"--seconds", "inf"},
                                      {"--op", "erase"},         {"--backend", "aio"},
                                      {"--depth", "65"},         {"--depth", "33", "--op", "mixed"},
                                      {"--sieze", "1MiB"},       {"leftover"}};
  for (const Arguments& more : bad) {
    const CommandResult result = run_command(nvme(directory, more));
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(more) << result.errors;
    EXPECT_EQ(result.output, "");
  }
  EXPECT_TRUE(directory.names().empty());
}

TEST(NvmeCommand, DriveThatIsTooSmallIsFailedWork) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(nvme(directory, {"--size", "1048576TiB"}));
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_NE(result.errors.find("NoSpace"), std::string::npos) << result.errors;
}

TEST(NvmeCommand, InterruptLeavesNothingBehind) {
  const ScratchDirectory directory;
  bool sent = false;
  const CommandResult result =
      run_command(nvme(directory, {"--seconds", "600"}), [&sent](pid_t process, const std::string& errors) {
        if (sent || errors.find("measuring") == std::string::npos) return;
        sent = true;
        kill(process, SIGINT);
      });
  EXPECT_EQ(result.exit_code, -SIGINT);
  EXPECT_TRUE(directory.names().empty());
}

}  // namespace
}  // namespace sluice::tools
