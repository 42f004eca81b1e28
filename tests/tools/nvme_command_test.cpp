#include <signal.h>

#include <algorithm>

#include <gmock/gmock.h>

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

class Nvme : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

TEST_P(Nvme, MeasuresAndVerifiesAndLeavesNothingBehind) {
  const auto [backend, op, pattern] = GetParam();
  const ScratchDirectory directory;
  const CommandResult result = run_command(nvme(
      directory, {"--backend", backend, "--op", op, "--pattern", pattern, "--threads", "3", "--verify"}));
  if (std::string(backend) == "uring" && result.exit_code == 1 &&
      result.errors.find("io_uring") != std::string::npos) {
    GTEST_SKIP() << result.errors;
  }
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  EXPECT_EQ(report.at("op"), op);
  EXPECT_EQ(report.at("pattern"), pattern);
  EXPECT_EQ(report.at("threads"), 3);
  EXPECT_GT(report.at("gib_per_s").get<double>(), 0);
  EXPECT_LE(report.at("gib_per_s_min").get<double>(), report.at("gib_per_s").get<double>());
  EXPECT_GE(report.at("gib_per_s_peak").get<double>(), report.at("gib_per_s_sustained").get<double>());
  EXPECT_FALSE(report.at("gib_per_s_each_second").empty());
  std::uint64_t counted = 0;
  for (const auto& bucket : report.at("latency_histogram"))
    counted += bucket.at("count").get<std::uint64_t>();
  EXPECT_EQ(counted, report.at("requests").get<std::uint64_t>());
  EXPECT_EQ(report.at("bytes_written").get<std::uint64_t>() -
                report.at("measured_bytes_written").get<std::uint64_t>(),
            report.at("size_bytes").get<std::uint64_t>());
  const auto& latency = report.at("latency_us");
  EXPECT_GT(latency.at("p50").get<double>(), 0);
  EXPECT_LE(latency.at("p50").get<double>(), latency.at("p99").get<double>());
  EXPECT_LE(latency.at("p99").get<double>(), latency.at("p99_9").get<double>());
  EXPECT_LE(latency.at("p99_9").get<double>(), latency.at("max").get<double>());
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
                                          testing::Values("read", "write", "mixed"),
                                          testing::Values("sequential", "random")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param) + "_" +
                                  std::get<2>(test.param);
                         });

TEST(NvmeCommand, TwoDirectoriesShareTheSize) {
  const ScratchDirectory first;
  const ScratchDirectory second;
  const CommandResult result =
      run_command(nvme(first, {"--dir", second.path(), "--op", "mixed", "--verify"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.json().at("drives"), 2);
}

TEST(NvmeCommand, BytesEndTheTest) {
  const ScratchDirectory directory;
  const CommandResult result =
      run_command({"nvme", "--json", "--dir", directory.path(), "--size", "4MiB", "--block", "64KiB",
                   "--depth", "4", "--threads", "2", "--op", "mixed", "--bytes", "6500KiB", "--verify"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  const auto moved =
      report.at("bytes_read").get<std::uint64_t>() + report.at("measured_bytes_written").get<std::uint64_t>();
  EXPECT_EQ(moved, 102U * (64 << 10));  // 101.6 blocks
}

TEST(NvmeCommand, BlocksAreCutIntoPieces) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(nvme(
      directory, {"--size", "16MiB", "--block", "1MiB", "--piece", "64KiB", "--depth", "20", "--verify"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.json().at("block_bytes"), 1 << 20);
  EXPECT_EQ(result.json().at("piece_bytes"), 64 << 10);
  EXPECT_EQ(result.json().at("depth"), 20);
}

TEST(NvmeCommand, TheReportSaysHowManyCompletionsWereTakenAtATime) {
  const ScratchDirectory directory;
  const CommandResult asked = run_command(nvme(directory, {"--batch", "3", "--verify"}));
  ASSERT_EQ(asked.exit_code, 0) << asked.errors;
  EXPECT_EQ(asked.json().at("batch"), 3);
  EXPECT_THAT(asked.errors, testing::HasSubstr("3 completion(s) at a time"));
  const CommandResult usual =
      run_command(nvme(directory, {"--size", "16MiB", "--block", "256KiB", "--depth", "16", "--verify"}));
  ASSERT_EQ(usual.exit_code, 0) << usual.errors;
  EXPECT_EQ(usual.json().at("batch"), 3);
}

TEST(NvmeCommand, NothingIsRegisteredWhereThatIsAsked) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(nvme(directory, {"--no-register", "--cpus", "0"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.json().at("registered_buffers"), false);
  EXPECT_EQ(result.json().at("registered_files"), false);
}

TEST(NvmeCommand, NonsenseIsBadUsage) {
  const ScratchDirectory directory;
  const std::vector<Arguments> bad = {{"--size", "0"},
                                      {"--size", "32KiB"},
                                      {"--size", "unlimited"},
                                      {"--size", "x"},
                                      {"--block", "0"},
                                      {"--block", "1000"},
                                      {"--block", "4097"},
                                      {"--block", "8MiB"},
                                      {"--block", "2GiB"},
                                      {"--block", "64KiB,128KiB"},
                                      {"--piece", "0"},
                                      {"--piece", "5000"},
                                      {"--piece", "128KiB"},
                                      {"--piece", "4294967296"},
                                      {"--depth", "0"},
                                      {"--depth", "-1"},
                                      {"--depth", "1000000000"},
                                      {"--depth", "99999999999999"},
                                      {"--depth", "4,8"},
                                      {"--batch", "0"},
                                      {"--batch", "5"},
                                      {"--batch", "-1"},
                                      {"--batch", "3", "--threads", "2"},
                                      {"--threads", "0"},
                                      {"--threads", "5"},
                                      {"--threads", "1000000000"},
                                      {"--cpus", "x"},
                                      {"--cpus", "1-"},
                                      {"--cpus", "2-1"},
                                      {"--cpus", "-1"},
                                      {"--cpus", "100000"},
                                      {"--cpus", "1023"},
                                      {"--cpus", "0,1023"},
                                      {"--seconds", "0"},
                                      {"--seconds", "-1"},
                                      {"--seconds", "nan"},
                                      {"--seconds", "inf"},
                                      {"--bytes", "0"},
                                      {"--bytes", "unlimited"},
                                      {"--op", "erase"},
                                      {"--op", "read,write"},
                                      {"--pattern", "spiral"},
                                      {"--backend", "aio"},
                                      {"--depth", "65"},
                                      {"--depth", "33", "--op", "mixed"},
                                      {"--plot", "x.svg"},
                                      {"--tune", "--compare"},
                                      {"--tune", "--verify"},
                                      {"--tune", "--piece", "64KiB"},
                                      {"--tune", "--batch", "1"},
                                      {"--tune", "--plot", "/no/such/folder/x.svg"},
                                      {"--tune", "--plot", directory.path()},
                                      {"--compare", "--threads", "2"},
                                      {"--compare", "--verify"},
                                      {"--compare", "--rounds", "0"},
                                      {"--compare", "--depth", "4,0"},
                                      {"--compare", "--depth", "4,8", "--batch", "5"},
                                      {"--compare", "--block", "64KiB,8MiB"},
                                      {"--compare", "--dir", directory.path()},
                                      {"--sieze", "1MiB"},
                                      {"leftover"}};
  for (const Arguments& more : bad) {
    const CommandResult result = run_command(nvme(directory, more));
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(more) << result.errors;
    EXPECT_EQ(result.output, "");
    if (more[0].starts_with("--")) {
      EXPECT_NE(result.errors.find("--"), std::string::npos) << "names no option: " << result.errors;
    }
  }
  EXPECT_TRUE(directory.names().empty());
}

TEST(NvmeCommand, DriveThatIsTooSmallIsFailedWork) {
  const ScratchDirectory directory;
  const CommandResult result = run_command(nvme(directory, {"--size", "1048576TiB"}));
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_NE(result.errors.find("NoSpace"), std::string::npos) << result.errors;
}

class NvmeInterrupt : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(NvmeInterrupt, EndsSoonAndLeavesNothingBehind) {
  const auto [mode, signal] = GetParam();
  const ScratchDirectory directory;
  const std::string plot = directory.path() + "/plot.svg";
  Arguments more = {"--seconds", "600"};
  const std::string_view how = mode;
  if (how == "compare") more.push_back("--compare");
  if (how == "tune") more.insert(more.end(), {"--tune", "--plot", plot});
  if (how == "threads") more.insert(more.end(), {"--threads", "2"});
  if (how == "batch") more.insert(more.end(), {"--batch", "4"});
  const char* const begun = how == "tune" ? "trying" : how == "compare" ? "writing" : "measuring";
  bool sent = false;
  const CommandResult result =
      run_command(nvme(directory, more), [&](pid_t process, const std::string& errors) {
        if (sent || errors.find(begun) == std::string::npos) return;
        sent = true;
        kill(process, signal);
      });
  EXPECT_EQ(result.exit_code, 128 + signal) << result.errors;
  EXPECT_EQ(result.output, "");
  EXPECT_TRUE(directory.names().empty());
}

INSTANTIATE_TEST_SUITE_P(EveryMode, NvmeInterrupt,
                         testing::Combine(testing::Values("plain", "threads", "batch", "tune", "compare"),
                                          testing::Values(SIGINT, SIGTERM)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) == SIGINT ? "_int" : "_term");
                         });

}  // namespace
}  // namespace sluice::tools
