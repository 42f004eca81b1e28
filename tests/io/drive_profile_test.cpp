#include "io/drive_profile.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/child.hpp"
#include "support/refusal.hpp"
#include "support/sim_world.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::io {
namespace {

using testing::HasSubstr;

const DriveProfile kProfile{.settings = {.piece_bytes = 4 << 20, .depth = 8},
                            .read_bytes_per_s = 3.5e9,
                            .write_bytes_per_s = 1.25e9,
                            .mixed_bytes_per_s = 2e9,
                            .measured_by = "probe",
                            .measured_on = "2026-11-30"};

void expect_equal(const DriveProfile& a, const DriveProfile& b) {
  EXPECT_EQ(a.settings, b.settings);
  EXPECT_EQ(a.read_bytes_per_s, b.read_bytes_per_s);
  EXPECT_EQ(a.write_bytes_per_s, b.write_bytes_per_s);
  EXPECT_EQ(a.mixed_bytes_per_s, b.mixed_bytes_per_s);
  EXPECT_EQ(a.measured_by, b.measured_by);
  EXPECT_EQ(a.measured_on, b.measured_on);
}

class DriveProfileTest : public testing::Test {
 protected:
  std::string file() const { return directory_.path_of(kProfileName); }
  std::string text() const {
    std::ifstream stream(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void put(const std::string& text) const { std::ofstream(file(), std::ios::binary) << text; }
  void expect_none(const std::string& why) const {
    std::string why_not;
    const Result<std::optional<DriveProfile>> loaded = load_profile(directory_, &why_not);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_FALSE(loaded->has_value());
    EXPECT_THAT(why_not, HasSubstr(why));
    EXPECT_THAT(why_not, HasSubstr(file()));
  }

  sim::TemporaryDirectory temporary_{sim::Beneath::kMemory};
  Directory directory_ = Directory::open(temporary_.path(), Access::kReadWrite).value();
};

TEST_F(DriveProfileTest, WhatIsSavedIsLoaded) {
  ASSERT_TRUE(save_profile(directory_, kProfile).ok());
  const Result<std::optional<DriveProfile>> loaded = load_profile(directory_);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  expect_equal(**loaded, kProfile);
  struct stat found;
  ASSERT_EQ(::stat(file().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(DriveProfileTest, ALaterOneReplacesItAndNothingElseStays) {
  ASSERT_TRUE(save_profile(directory_, kProfile).ok());
  DriveProfile later = kProfile;
  later.settings.depth = 16;
  later.measured_by = "tune";
  ASSERT_TRUE(save_profile(directory_, later).ok());
  expect_equal(*load_profile(directory_).value(), later);
  EXPECT_THAT(directory_.names().value(), testing::ElementsAre(std::string(kProfileName)));
}

TEST_F(DriveProfileTest, AnEmptyDirectoryHasNone) { expect_none("there is none"); }

TEST_F(DriveProfileTest, AnotherDrivesIsNotTaken) {
  const sim::TemporaryDirectory elsewhere;
  const Directory other = Directory::open(elsewhere.path(), Access::kReadWrite).value();
  if (drive_identity(other).value() == drive_identity(directory_).value()) GTEST_SKIP() << "one drive here";
  ASSERT_TRUE(save_profile(other, kProfile).ok());
  std::filesystem::copy_file(other.path_of(kProfileName), file());
  expect_none("another drive");
}

TEST_F(DriveProfileTest, IdentityIsOneLineAndTheSameForEveryDirectoryOfADrive) {
  const std::string identity = drive_identity(directory_).value();
  EXPECT_THAT(identity, HasSubstr("device "));
  EXPECT_TRUE(std::ranges::all_of(identity, [](char letter) { return letter >= ' ' && letter <= '~'; }))
      << identity;
  EXPECT_EQ(drive_identity(directory_.subdirectory("below", Creation::kExclusive).value()).value(), identity);
}

TEST_F(DriveProfileTest, AnotherVersionIsSaidToBeOne) {
  ASSERT_TRUE(save_profile(directory_, kProfile).ok());
  std::string changed = text();
  changed.replace(changed.find(" 1\n"), 3, " 2\n");
  put(changed);
  expect_none("version 2");
}

TEST_F(DriveProfileTest, WhatIsNoRegularFileIsNeitherFollowedNorWaitedFor) {
  ASSERT_TRUE(save_profile(directory_, kProfile).ok());
  std::filesystem::rename(file(), directory_.path_of("elsewhere"));
  std::filesystem::create_symlink("elsewhere", file());
  expect_none("not a regular file");
  std::filesystem::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  expect_none("not a regular file");
  std::filesystem::remove(file());
  std::filesystem::create_directory(file());
  expect_none("not a regular file");
}

TEST_F(DriveProfileTest, AHugeFileIsNotRead) {
  put("sluice-drive 1\n");
  std::filesystem::resize_file(file(), std::uintmax_t{1} << 40);
  expect_none("longer");
}

TEST_F(DriveProfileTest, NumbersThatNoDriveHasAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [&](auto change) {
    DriveProfile profile = kProfile;
    change(profile);
    return save_profile(directory_, profile).code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](DriveProfile& profile) { profile.settings.depth = 0; }));
  EXPECT_TRUE(refused([](DriveProfile& profile) { profile.settings.depth = 1'000'000'000; }));
  EXPECT_TRUE(refused([](DriveProfile& profile) { profile.settings.piece_bytes = 0; }));
  EXPECT_TRUE(refused([](DriveProfile& profile) { profile.settings.piece_bytes = 0xffffffff; }));
  EXPECT_TRUE(refused([&](DriveProfile& profile) { profile.read_bytes_per_s = nan; }));
  EXPECT_TRUE(refused([](DriveProfile& profile) { profile.write_bytes_per_s = -1; }));
  EXPECT_TRUE(refused([](DriveProfile& profile) { profile.mixed_bytes_per_s = 1e300; }));
  EXPECT_TRUE(refused([](DriveProfile& profile) { profile.measured_by = "a b"; }));
  EXPECT_TRUE(refused([](DriveProfile& profile) { profile.measured_on = "yesterday"; }));
  EXPECT_TRUE(directory_.names().value().empty());
}

TEST_F(DriveProfileTest, AFailedSaveLeavesTheEarlierOneAndNothingElse) {
  ASSERT_TRUE(save_profile(directory_, kProfile).ok());
  DriveProfile later = kProfile;
  later.settings.depth = 1;
  for (const std::vector<long>& calls : {std::vector<long>{SYS_fsync}, {SYS_renameat, SYS_renameat2}}) {
    const std::string said = sim::in_child([&]() -> std::string {
      std::vector<sim::Refusal> refusals;
      for (const long call : calls) refusals.push_back({.call = call, .error = EIO});
      if (!sim::refuse(refusals)) return "no seccomp here";
      return save_profile(directory_, later).to_string();
    });
    EXPECT_THAT(said, HasSubstr("native 5"));
    EXPECT_THAT(directory_.names().value(), testing::ElementsAre(std::string(kProfileName)));
    expect_equal(*load_profile(directory_).value(), kProfile);
  }
}

TEST_F(DriveProfileTest, NoChangeOfItsBytesIsTaken) {
  ASSERT_TRUE(save_profile(directory_, kProfile).ok());
  const std::string whole = text();
  const std::uint64_t seed = sim::seed_or(20261130);
  SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto expect_refused = [&](const std::string& changed) {
    if (changed == whole) return;
    put(changed);
    const Result<std::optional<DriveProfile>> loaded = load_profile(directory_);
    ASSERT_TRUE(loaded.ok());
    EXPECT_FALSE(loaded->has_value()) << changed;
  };
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) expect_refused(whole.substr(0, bytes));
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    expect_refused(changed);
  }
  for (int round = 0; round < 2000; ++round) {
    std::string changed = whole;
    for (std::uint64_t edits = random() % 4 + 1; edits > 0; --edits) {
      const std::size_t at = random() % (changed.size() + 1), bytes = random() % 20;
      switch (random() % 3) {
        case 0:
          changed.erase(at, bytes);
          break;
        case 1:
          changed.insert(at, bytes, static_cast<char>(random()));
          break;
        default:
          changed.insert(at, whole.substr(random() % whole.size(), bytes));
          break;
      }
    }
    expect_refused(changed);
  }
}

}  // namespace
}  // namespace sluice::io
