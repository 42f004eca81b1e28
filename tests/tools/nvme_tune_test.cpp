#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/drive_profile.hpp"
#include "run_command.hpp"
#include "tools/nvme/drive_tune.hpp"
#include "tools/nvme/tune_plot.hpp"
#include "tools/nvme/tune_table.hpp"

namespace sluice::tools {
namespace {

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TunePoint point(std::uint32_t depth, double gib_per_s) {
  return {
      .block_bytes = 1 << 20, .settings = {.piece_bytes = 1 << 20, .depth = depth}, .gib_per_s = gib_per_s};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Whether every element is closed in the order of opening, attributes are quoted and nothing is left bare.
testing::AssertionResult is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != xml.npos; at = xml.find('<', at)) {
    const std::size_t end = xml.find('>', at);
    if (end == xml.npos) return testing::AssertionFailure() << "a tag without an end at " << at;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    const std::string name =
        tag.substr(tag.starts_with('/'), tag.find_first_of(" /\\n", 1) - tag.starts_with('/'));
    at = end + 1;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0 || tag.find('<') != tag.npos)
      return testing::AssertionFailure() << "a wrong tag: " << tag;
    if (tag.starts_with('?') || tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return testing::AssertionFailure()
             << "</" << name << "> closes " << (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
    if (open.empty() && xml.find_first_not_of(" \n", end + 1) != xml.npos && xml.find('<', end) == xml.npos)
      return testing::AssertionFailure() << "text behind the root";
  }
  for (std::size_t at = xml.find('&'); at != xml.npos; at = xml.find('&', at + 1)) {
    if (xml.find(';', at) > at + 6) return testing::AssertionFailure() << "a bare & at " << at;
  }
  if (!open.empty()) return testing::AssertionFailure() << "<" << open.back() << "> is not closed";
  return testing::AssertionSuccess();
}

TEST(Tuning, TheLeastDepthThatGivesNearlyTheMostIsChosen) {
  EXPECT_EQ(choose({point(64, 5.0), point(16, 4.95), point(8, 4.91), point(4, 4.8)}).settings.depth, 8U);
  EXPECT_EQ(choose({point(4, 1.0), point(4, 1.01)}).gib_per_s, 1.01);
  EXPECT_EQ(choose({point(2, 0)}).settings.depth, 2U);
}

TEST(Tuning, OfEachDepthTheFastestIsTriedAgainWhereItIsNearTheFastestOfAll) {
  const auto finalists = finalists_of(
      {point(2, 3.0), point(8, 4.0), point(8, 4.8), point(16, 5.0), point(32, 4.7), point(64, 4.6)});
  std::vector<double> rates;
  for (const TunePoint& one : finalists) rates.push_back(one.gib_per_s);
  EXPECT_THAT(rates, testing::ElementsAre(5.0, 4.8, 4.7));
}

TEST(Tuning, TheTableHasALineABlockAndAColumnADepth) {
  std::vector<TunePoint> points = {point(2, 3.0), point(8, 4.25)};
  points.push_back(
      {.block_bytes = 4 << 20, .settings = {.piece_bytes = 1 << 20, .depth = 8}, .gib_per_s = 5});
  EXPECT_EQ(tune_table(points),
            "GiB/s at depth           2     8\n"
            "--------------------------------\n"
            "1.00 MiB              3.00  4.25\n"
            "4.00 MiB in 1.00 MiB        5.00\n");
}

TEST(TunePlot, HasAPointForEachMeasurementAndIsWellFormed) {
  std::vector<DriveTuning> drives(2);
  drives[0].directory = "/a & <b>\"\x01";
  drives[1].directory = "/c";
  for (const std::uint32_t depth : {2U, 8U, 32U}) {
    for (const std::uint64_t block_bytes : {128 << 10, 1 << 20, 4 << 20}) {
      for (DriveTuning& drive : drives) {
        drive.points.push_back({.block_bytes = block_bytes,
                                .settings = {.piece_bytes = 128 << 10, .depth = depth},
                                .gib_per_s = depth * 0.1});
      }
    }
  }
  drives[1].chosen = drives[1].points.back();
  const std::string svg = tune_svg(drives, "mixed & more");
  EXPECT_TRUE(is_well_formed(svg)) << svg;
  EXPECT_EQ(count(svg, "class=\"point\""), 18U);
  EXPECT_EQ(count(svg, ">depth 32<"), 2U);
  EXPECT_EQ(count(svg, "GiB/s</text>"), 2U);
  EXPECT_NE(svg.find("<title>4.00 MiB in 128 KiB x 32: 3.200 GiB/s</title>"), svg.npos) << svg;
}

TEST(TunePlot, ASinglePointOfNothingIsDrawn) {
  std::vector<DriveTuning> drives(1);
  drives[0].points = {point(4, 0)};
  const std::string svg = tune_svg(drives, "");
  EXPECT_TRUE(is_well_formed(svg)) << svg;
  EXPECT_EQ(svg.find("nan"), svg.npos);
  EXPECT_EQ(svg.find("inf"), svg.npos);
}

// The file is cut to the common block; one that leaves a point a single block must not be searched for a second.
TEST(TuneCommand, AFileOfTooFewBlocksIsRefused) {
  const ScratchDirectory directory;
  const CommandResult result =
      run_command({"nvme", "--dir", directory.path(), "--size", "2560KiB", "--seconds", "0.005", "--block",
                   "1280KiB", "--depth", "1", "--tune"});
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_NE(result.errors.find("--size"), std::string::npos) << result.errors;
  EXPECT_TRUE(directory.names().empty());
}

TEST(TuneCommand, KeepsWhatItChoseForEnginesAndDrawsEveryPoint) {
  const ScratchDirectory directory;
  const ScratchDirectory plots;
  const std::string plot = plots.path() + "/plot.svg";
  std::ofstream(plot) << "an older one";
  const CommandResult result =
      run_command({"nvme", "--json", "--dir", directory.path(), "--size", "16MiB", "--seconds", "0.005",
                   "--block", "64KiB,128KiB,2MiB", "--depth", "2,4", "--tune", "--plot", plot});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  ASSERT_EQ(report.at("tuned").size(), 1U);
  const auto& tuned = report.at("tuned").at(0);
  EXPECT_EQ(tuned.at("points").size(), 10U) << tuned;  // 2 MiB also in 256 KiB and in 1 MiB
  EXPECT_EQ(report.at("op"), "mixed");
  for (const char* field : {"block_bytes", "piece_bytes", "depth"})
    EXPECT_EQ(report.at(field), tuned.at(field));

  EXPECT_THAT(directory.names(), testing::ElementsAre(std::string(io::kProfileName)));
  const auto opened = io::Directory::open(directory.path(), io::Access::kReadOnly);
  ASSERT_TRUE(opened.ok());
  const auto profile = io::load_profile(*opened);
  ASSERT_TRUE(profile.ok() && profile->has_value()) << profile.status().to_string();
  EXPECT_EQ((*profile)->settings.depth, tuned.at("depth"));
  EXPECT_EQ((*profile)->settings.piece_bytes, tuned.at("piece_bytes"));
  EXPECT_EQ((*profile)->measured_by, "tune");
  EXPECT_GT((*profile)->read_bytes_per_s, 0);
  EXPECT_GT((*profile)->write_bytes_per_s, 0);
  EXPECT_GT((*profile)->mixed_bytes_per_s, 0);

  EXPECT_THAT(plots.names(), testing::ElementsAre("plot.svg"));
  const std::string svg = read_file(plot);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(count(svg, "class=\"point\""), 10U);
}

TEST(TuneCommand, EachDriveIsTunedAlone) {
  const ScratchDirectory first;
  const ScratchDirectory second;
  const CommandResult result = run_command({"nvme", "--json", "--dir", first.path(), "--dir", second.path(),
                                            "--size", "16MiB", "--seconds", "0.005", "--block",
                                            "64KiB,128KiB", "--depth", "2,4", "--tune", "--op", "read"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  const auto& tuned = report.at("tuned");
  ASSERT_EQ(tuned.size(), 2U);
  EXPECT_EQ(tuned.at(0).at("directory"), first.path());
  EXPECT_EQ(tuned.at(1).at("directory"), second.path());
  EXPECT_EQ(first.names().size(), 1U);
  EXPECT_EQ(second.names().size(), 1U);
  EXPECT_EQ(report.at("drives"), 2);
}

TEST(TuneCommand, ASizeThatHasRoomForNoPointIsBadUsage) {
  const ScratchDirectory directory;
  const CommandResult result = run_command({"nvme", "--dir", directory.path(), "--size", "256KiB", "--tune"});
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_NE(result.errors.find("--size"), std::string::npos) << result.errors;
  EXPECT_TRUE(directory.names().empty());
}

}  // namespace
}  // namespace sluice::tools
