#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "run_command.hpp"
#include "tools/nvme/drive_compare.hpp"

namespace sluice::tools {
namespace {

Contender contender(const std::string& name, std::vector<double> gib_per_s, std::vector<double> cpu) {
  Contender made;
  made.name = name;
  made.gib_per_s = std::move(gib_per_s);
  made.cpu_s_per_gib = std::move(cpu);
  return made;
}

TEST(Comparison, RatiosAreOfMediansToTheFastestOther) {
  Comparison comparison;
  comparison.contenders = {contender("sluice", {3.0, 2.0, 4.0}, {0.02, 0.03, 0.01}),
                           contender("slow", {1.0, 9.0, 1.0}, {0.01, 0.01, 0.01}),
                           contender("best", {4.0, 3.0, 4.0}, {0.04, 0.05, 0.03})};
  settle(comparison);
  EXPECT_EQ(comparison.contenders[comparison.best].name, "best");
  EXPECT_DOUBLE_EQ(comparison.ratio, 0.75);
  EXPECT_DOUBLE_EQ(comparison.ratio_min, 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(comparison.ratio_max, 1.0);
  EXPECT_DOUBLE_EQ(comparison.cpu_ratio, 0.5);
  EXPECT_DOUBLE_EQ(comparison.cpu_ratio_least, 2.0);
}

TEST(TurnOrder, GivesEachEveryPlaceOnceAndEveryOtherBeforeItAsOften) {
  for (std::size_t count = 1; count <= 6; ++count) {
    std::map<std::pair<std::size_t, std::size_t>, int> places, followed;
    for (std::size_t round = 0; round < 2 * count; ++round) {
      const std::vector<std::size_t> order = turn_order(round, count);
      ASSERT_EQ(order.size(), count);
      for (std::size_t place = 0; place < count; ++place) {
        if (round < count) ++places[{order[place], place}];
        if (place > 0) ++followed[{order[place - 1], order[place]}];
      }
    }
    EXPECT_EQ(places.size(), count * count);
    EXPECT_EQ(followed.size(), count * (count - 1));
    EXPECT_THAT(places, testing::Each(testing::Pair(testing::_, 1)));
    EXPECT_THAT(followed, testing::Each(testing::Pair(testing::_, 2)));
  }
}

TEST(CompareCommand, AFileOfTooFewBlocksIsRefused) {
  const ScratchDirectory directory;
  const CommandResult result =
      run_command({"nvme", "--dir", directory.path(), "--size", "2MiB", "--block", "768KiB,1MiB", "--depth",
                   "1", "--op", "mixed", "--seconds", "0.01", "--rounds", "1", "--compare"});
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_NE(result.errors.find("--size"), std::string::npos) << result.errors;
}

TEST(CompareCommand, MeasuresEveryPointBesideEveryOther) {
  const ScratchDirectory directory;
  const CommandResult result = run_command({"nvme", "--json", "--dir", directory.path(), "--size", "4MiB",
                                            "--block", "64KiB,128KiB", "--depth", "2,4", "--op", "read,mixed",
                                            "--seconds", "0.01", "--rounds", "2", "--compare"});
  if (result.exit_code == 1 && result.errors.find("nobody is left") != std::string::npos)
    GTEST_SKIP() << result.errors;
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  ASSERT_EQ(report.at("comparisons").size(), 8U);
  for (const auto& comparison : report.at("comparisons")) {
    ASSERT_GE(comparison.at("contenders").size(), 2U);
    EXPECT_EQ(comparison.at("contenders").at(0).at("name"), "sluice");
    EXPECT_NE(comparison.at("best"), "sluice");
    for (const auto& one : comparison.at("contenders")) {
      EXPECT_EQ(one.at("rounds_gib_per_s").size(), 2U);
      EXPECT_GT(one.at("gib_per_s").get<double>(), 0);
    }
    for (const char* field : {"ratio", "ratio_min", "ratio_max"}) {
      const double ratio = comparison.at(field).get<double>();
      EXPECT_TRUE(std::isfinite(ratio) && ratio > 0) << field << " " << ratio;
    }
    EXPECT_LE(comparison.at("ratio_min"), comparison.at("ratio_max"));
  }
  ASSERT_EQ(report.at("best_settings").size(), 2U);
  EXPECT_EQ(report.at("best_settings").at(1).at("op"), "mixed");
  EXPECT_TRUE(directory.names().empty());
}

TEST(CompareCommand, AFioThatFailsTakesNoPartAndIsNoted) {
  const ScratchDirectory directory;
  const ScratchDirectory path;
  const std::string script = path.path() + "/fio";
  std::ofstream(script) << "#!/bin/sh\necho no such engine >&2\nexit 1\n";
  ASSERT_EQ(::chmod(script.c_str(), 0700), 0);
  const std::string before = std::getenv("PATH");
  ::setenv("PATH", (path.path() + ":" + before).c_str(), 1);
  const CommandResult result =
      run_command({"nvme", "--json", "--dir", directory.path(), "--size", "4MiB", "--block", "64KiB",
                   "--depth", "4", "--seconds", "0.01", "--rounds", "1", "--compare"});
  ::setenv("PATH", before.c_str(), 1);
  if (result.exit_code == 1 && result.errors.find("nobody is left") != std::string::npos)
    GTEST_SKIP() << result.errors;
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  EXPECT_NE(report.at("notes").dump().find("fio_libaio: "), std::string::npos) << report.at("notes");
  EXPECT_NE(report.at("notes").dump().find("no such engine"), std::string::npos) << report.at("notes");
  for (const auto& one : report.at("comparisons").at(0).at("contenders"))
    EXPECT_FALSE(one.at("name").get<std::string>().starts_with("fio"));
}

}  // namespace
}  // namespace sluice::tools
