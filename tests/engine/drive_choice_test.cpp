#include "engine/drive_choice.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "io/drive_probe.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kMemory = 32 << 20;

io::DriveProfile profile(std::uint32_t depth, double mixed, std::string by = "probe") {
  return {.settings = {.piece_bytes = 256 << 10, .depth = depth},
          .read_bytes_per_s = 2e9,
          .write_bytes_per_s = 1e9,
          .mixed_bytes_per_s = mixed,
          .measured_by = std::move(by),
          .measured_on = "2026-11-30"};
}

class DriveChoiceTest : public testing::Test {
 protected:
  DriveChoiceTest() {
    question_.probe = [this](const io::Directory&, std::span<std::byte> memory, IoBackend) {
      ++probes_;
      EXPECT_GE(memory.size(), io::kProbeMemoryBytesMin);
      return probed_;
    };
    question_.probe_memory_bytes = kMemory;
  }

  std::vector<io::Directory> open_drives() const {
    std::vector<io::Directory> drives;
    for (const auto* of : {&a_, &b_})
      drives.push_back(io::Directory::open(of->path(), io::Access::kReadWrite).value());
    return drives;
  }
  DriveChoice choose() const { return choose_drives(drives_, question_); }

  sim::TemporaryDirectory a_{sim::Beneath::kMemory}, b_{sim::Beneath::kMemory};
  std::vector<io::Directory> drives_ = open_drives();
  DriveQuestion question_;
  std::atomic<int> probes_{0};
  Result<io::DriveProfile> probed_ = profile(8, 1e9);
};

TEST_F(DriveChoiceTest, WithoutProfilesTheDefaultsAreInUseAndSaidToBe) {
  const DriveChoice choice = choose();
  EXPECT_THAT(choice.settings, ElementsAre(io::DriveSettings(), io::DriveSettings()));
  EXPECT_THAT(choice.weights, IsEmpty());
  EXPECT_THAT(choice.fallbacks, IsEmpty());
  EXPECT_EQ(choice.stats[0].source, "default");
  EXPECT_THAT(choice.stats[0].note, HasSubstr("not worth a probe"));
  EXPECT_EQ(choice.stats[0].directory, a_.path());
  EXPECT_EQ(probes_, 0);
}

TEST_F(DriveChoiceTest, AProfileIsInUseAndWeighsItsDrive) {
  ASSERT_TRUE(io::save_profile(drives_[0], profile(8, 3e9)).ok());
  ASSERT_TRUE(io::save_profile(drives_[1], profile(16, 1e9, "tune")).ok());
  const DriveChoice choice = choose();
  EXPECT_EQ(choice.settings[0], (io::DriveSettings{.piece_bytes = 256 << 10, .depth = 8}));
  EXPECT_EQ(choice.settings[1].depth, 16u);
  EXPECT_THAT(choice.weights, ElementsAre(3e9, 1e9));
  EXPECT_EQ(choice.stats[0].source, "probe 2026-11-30");
  EXPECT_EQ(choice.stats[1].source, "tune 2026-11-30");
  EXPECT_EQ(choice.stats[1].read_bytes_per_s, 2e9);
}

TEST_F(DriveChoiceTest, WithoutAMixedRateAStepIsReadAndWritten) {
  for (const io::Directory& drive : drives_) ASSERT_TRUE(io::save_profile(drive, profile(8, 0)).ok());
  for (const double weight : choose().weights) EXPECT_NEAR(weight, 4e9 / 3, 1);
}

TEST_F(DriveChoiceTest, OptionsWinOverTheProfile) {
  ASSERT_TRUE(io::save_profile(drives_[0], profile(8, 1e9)).ok());
  question_.io.queue_depth = 5;
  EXPECT_EQ(choose().settings[0], (io::DriveSettings{.piece_bytes = 256 << 10, .depth = 5}));
  EXPECT_EQ(choose().stats[0].source, "options, else probe 2026-11-30");
  EXPECT_EQ(choose().settings[1], (io::DriveSettings{.piece_bytes = 1 << 20, .depth = 5}));
  question_.io.piece_bytes = 8192;
  EXPECT_EQ(choose().settings[0], (io::DriveSettings{.piece_bytes = 8192, .depth = 5}));
  EXPECT_EQ(choose().stats[0].source, "options");
}

TEST_F(DriveChoiceTest, OneUnknownDriveMakesAllTakeTheSame) {
  ASSERT_TRUE(io::save_profile(drives_[0], profile(8, 1e9)).ok());
  const DriveChoice choice = choose();
  EXPECT_THAT(choice.weights, IsEmpty());
  EXPECT_THAT(choice.fallbacks, ElementsAre(HasSubstr("1 of 2 drives")));
}

TEST_F(DriveChoiceTest, ADriveIsProbedWhenItIsWorthItAndOnlyOnce) {
  question_.store_bytes = kProbedStoreBytesMin;
  EXPECT_EQ(choose().settings[0].depth, 8u);
  EXPECT_EQ(probes_, 2);
  const DriveChoice again = choose();
  EXPECT_EQ(probes_, 2);
  EXPECT_EQ(again.stats[0].source, "probe 2026-11-30");
  EXPECT_THAT(again.weights, ElementsAre(1e9, 1e9));
}

TEST_F(DriveChoiceTest, OptionsSayWhetherADriveIsProbed) {
  question_.store_bytes = kProbedStoreBytesMin;
  question_.io.probe = DriveProbe::kNever;
  choose();
  EXPECT_EQ(probes_, 0);
  question_.io.probe = DriveProbe::kAlways;
  question_.store_bytes = 1;
  choose();
  EXPECT_EQ(probes_, 2);
}

TEST_F(DriveChoiceTest, RanksOfOneDriveProbeItOnce) {
  question_.io.probe = DriveProbe::kAlways;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back(
        [this] { EXPECT_EQ(choose_drives(open_drives(), question_).stats[0].source, "probe 2026-11-30"); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(probes_, 2);
}

TEST_F(DriveChoiceTest, AFailedProbeIsToldAndTheDefaultsAreInUse) {
  question_.io.probe = DriveProbe::kAlways;
  probed_ = Status(Code::kNoSpace, "the drive is full");
  const DriveChoice choice = choose();
  EXPECT_EQ(choice.settings[0], io::DriveSettings());
  EXPECT_EQ(choice.stats[0].source, "default");
  EXPECT_THAT(choice.fallbacks, ElementsAre(HasSubstr("the drive is full"), HasSubstr("the drive is full")));
}

TEST_F(DriveChoiceTest, AProfileThatCannotBeKeptIsInUseAllTheSame) {
  question_.io.probe = DriveProbe::kAlways;
  // Its name is taken by what no file can replace.
  std::filesystem::create_directories(a_.path() + "/" + std::string(io::kProfileName) + "/x");
  const DriveChoice choice = choose();
  EXPECT_EQ(choice.settings[0].depth, 8u);
  EXPECT_THAT(choice.fallbacks, ElementsAre(HasSubstr("could not be kept")));
}

TEST_F(DriveChoiceTest, ADamagedProfileIsToldAndNotInUse) {
  std::ofstream(a_.path() + "/" + std::string(io::kProfileName)) << "sluice-drive 1\n";
  const DriveChoice choice = choose();
  EXPECT_EQ(choice.settings[0], io::DriveSettings());
  EXPECT_THAT(choice.stats[0].note, HasSubstr("damaged"));
}

TEST_F(DriveChoiceTest, TooLittleHostMemoryIsNoReasonToFail) {
  question_.io.probe = DriveProbe::kAlways;
  question_.probe_memory_bytes = 1 << 20;
  EXPECT_EQ(choose().stats[0].source, "default");
  EXPECT_EQ(probes_, 0);
}

TEST_F(DriveChoiceTest, FollowsTheOrderOfTheStore) {
  ASSERT_TRUE(io::save_profile(drives_[0], profile(8, 3e9)).ok());
  ASSERT_TRUE(io::save_profile(drives_[1], profile(16, 1e9)).ok());
  const std::vector<std::string> order = {b_.path(), a_.path()};
  const DriveChoice choice = in_order_of(order, choose());
  EXPECT_EQ(choice.settings[0].depth, 16u);
  EXPECT_THAT(choice.weights, ElementsAre(1e9, 3e9));
  EXPECT_EQ(choice.stats[1].directory, a_.path());
}

}  // namespace
}  // namespace sluice::engine
