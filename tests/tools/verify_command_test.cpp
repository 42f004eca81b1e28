#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "made_store.hpp"
#include "run_command.hpp"
#include "store_damage.hpp"
#include "support/child.hpp"
#include "tools/store_view.hpp"
#include "tools/verify_store.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A store with two commits, not in use.
class Verify : public ::testing::Test {
 protected:
  Verify() {
    MadeStore made({directory_.path()}, 2);
    made.step();
    older_ = made.commit();
    made.step();
    newer_ = made.commit();
    made.close();
  }

  CommandResult verify(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"verify", "--json", "--dir", directory_.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments);
  }
  void damage(std::uint64_t commit, const std::string& parameter, std::uint64_t element,
              std::size_t plane) const {
    flip(find_plane_byte(directory_.path(), commit, parameter, element, plane));
  }

  const ScratchDirectory directory_;
  std::uint64_t older_ = 0;
  std::uint64_t newer_ = 0;
};

TEST_F(Verify, WholeStoreIsOk) {
  const CommandResult result = verify();
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = result.json();
  EXPECT_TRUE(report.at("ok").get<bool>());
  ASSERT_EQ(report.at("commits").size(), 2U);
  EXPECT_EQ(report.at("commits")[0].at("number"), newer_);
  EXPECT_EQ(report.at("commits")[1].at("number"), older_);
  EXPECT_GE(report.at("bytes_read").get<std::uint64_t>(), 2U * (300 * 100 + 77 + 1 + 40'000) * 12);
  EXPECT_GT(report.at("seconds").get<double>(), 0);
  EXPECT_GT(report.at("gib_per_s").get<double>(), 0);
}

TEST_F(Verify, FlippedBitIsFoundByParameterRangeAndPlaneAndTheGoodOlderCommitIsNamed) {
  damage(newer_, "deep", 33'333, 2);
  const CommandResult result = verify();
  EXPECT_EQ(result.exit_code, 1);
  const nlohmann::json report = result.json();
  EXPECT_FALSE(report.at("ok").get<bool>());
  ASSERT_EQ(report.at("commits")[0].at("bad").size(), 1U) << report.dump(1);
  EXPECT_TRUE(report.at("commits")[1].at("bad").empty());
  const nlohmann::json& bad = report.at("commits")[0].at("bad")[0];
  EXPECT_EQ(bad.at("parameter"), "deep");
  EXPECT_EQ(bad.at("plane"), "moment1");
  EXPECT_EQ(bad.at("rank"), 0);
  EXPECT_LE(bad.at("first").get<std::uint64_t>(), 33'333U);
  EXPECT_GT(bad.at("first").get<std::uint64_t>() + bad.at("count").get<std::uint64_t>(), 33'333U);
  EXPECT_EQ(bad.at("good_in"), older_);
  EXPECT_THAT(bad.at("drive").get<std::string>(), HasSubstr(directory_.path()));
  EXPECT_THAT(result.errors, HasSubstr("moment1 of 'deep'"));
  EXPECT_THAT(result.errors, HasSubstr("commit " + std::to_string(older_) + " has a good older copy"));
}

TEST_F(Verify, EveryPlaneIsHeldAgainstItsChecksum) {
  const std::vector<std::string> planes = {"weight", "residual", "moment1", "moment2"};
  for (std::size_t plane = 0; plane < planes.size(); ++plane) {
    const PlaneByte byte = find_plane_byte(directory_.path(), newer_, "embedding", 0, plane);
    flip(byte);
    const nlohmann::json report = verify().json();
    ASSERT_GE(report.at("commits")[0].at("bad").size(), 1U) << planes[plane];
    EXPECT_EQ(report.at("commits")[0].at("bad")[0].at("plane"), planes[plane]);
    flip(byte);
  }
  EXPECT_EQ(verify().exit_code, 0);
}

TEST_F(Verify, WhatIsBadInAllCommitsHasNoGoodCopy) {
  damage(newer_, "gain", 5, 0);
  damage(older_, "gain", 5, 0);
  const nlohmann::json report = verify().json();
  for (const nlohmann::json& commit : report.at("commits")) {
    ASSERT_FALSE(commit.at("bad").empty());
    for (const nlohmann::json& bad : commit.at("bad")) EXPECT_TRUE(bad.at("good_in").is_null());
  }
}

TEST_F(Verify, SharedPlaneIsBadInEachCommitThatHasIt) {
  damage(newer_, "ice", 7, 0);
  const nlohmann::json report = verify().json();
  for (const nlohmann::json& commit : report.at("commits")) {
    ASSERT_EQ(commit.at("bad").size(), 1U);
    EXPECT_EQ(commit.at("bad")[0].at("parameter"), "ice");
    EXPECT_TRUE(commit.at("bad")[0].at("good_in").is_null());
  }
}

TEST_F(Verify, OneCommitMayBeChosen) {
  damage(newer_, "scale", 0, 0);
  EXPECT_EQ(verify({"--commit", std::to_string(older_)}).exit_code, 0);
  const CommandResult bad = verify({"--commit", std::to_string(newer_)});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_EQ(bad.json().at("commits").size(), 1U);
  EXPECT_THAT(bad.errors, HasSubstr("older commits were not read"));
  const CommandResult unknown = verify({"--commit", "77"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("77"));
}

TEST_F(Verify, StoreInUseIsRefusedByItsProcess) {
  MadeStore made({directory_.path()}, 2);
  const CommandResult result = verify();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr(std::to_string(getpid())));
  EXPECT_TRUE(result.output.empty());
  made.close();
}

TEST_F(Verify, ReadOnlyFileSystemIsReadWithoutALock) {
  const ScratchDirectory place;
  const auto on_a_read_only_copy = [&](const std::function<void()>& prepare,
                                       const std::function<std::string()>& body) {
    return sim::in_child([&]() -> std::string {
      if (!sim::mount_tmpfs(place.path(), 64 << 20)) return "skip";
      fs::copy(directory_.path(), place.path(), fs::copy_options::recursive);
      prepare();
      return sim::remount_read_only(place.path()) ? body() : "skip";
    });
  };
  const std::string said = on_a_read_only_copy(
      [] {},
      [&] {
        const CommandResult verified = run_command({"verify", "--dir", place.path()});
        const CommandResult exported =
            run_command({"export", "--dir", place.path(), "--to", directory_.path() + "/x.safetensors"});
        return std::to_string(verified.exit_code) + " " + std::to_string(exported.exit_code) +
               verified.errors + exported.errors;
      });
  if (said == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_EQ(said.substr(0, 3), "0 0") << said;

  const auto sign = [&] {
    for (const auto& entry : fs::recursive_directory_iterator(place.path())) {
      if (entry.path().filename() == "lock")
        std::ofstream(entry.path().parent_path() / "owner") << store::encode(store::Owner::make());
    }
  };
  EXPECT_THAT(
      on_a_read_only_copy(
          sign, [&] { return ClaimedStore::claim({place.path()}, std::nullopt).status().to_string(); }),
      HasSubstr("in use by process"));
}

TEST_F(Verify, LetsGoOfTheStoreOnlyWhenNobodyLooksForStores) {
  auto claimed = ClaimedStore::claim({directory_.path()}, std::nullopt);
  ASSERT_TRUE(claimed.ok()) << claimed.status().to_string();
  const auto reader = (*claimed)->open(newer_);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  const auto held = [&] {
    const auto views = look_at_stores({directory_.path()});
    return views.ok() && views->front().owner.has_value();
  };
  const auto drives = store::Drives::open(std::vector{directory_.path()}, io::Access::kReadOnly);
  ASSERT_TRUE(drives.ok());
  std::optional guards = drives->guard();
  std::thread other([&] { claimed->reset(); });
  for (int i = 0; i < 1000 && !HasFailure(); ++i) EXPECT_TRUE(held());
  guards.reset();
  other.join();
  EXPECT_FALSE(held());
}

TEST_F(Verify, MayBeEndedOnTheWay) {
  const auto claimed = ClaimedStore::claim({directory_.path()}, std::nullopt);
  ASSERT_TRUE(claimed.ok()) << claimed.status().to_string();
  const auto report = verify_store(**claimed, VerifyScope::kAllCommits,
                                   [](std::uint64_t) { return Status(Code::kAborted, "enough"); });
  EXPECT_EQ(report.status().code(), Code::kAborted);
}

TEST(VerifyUsage, NothingToVerifyIsFailedWorkAndNonsenseBadUsage) {
  const ScratchDirectory empty;
  EXPECT_EQ(run_command({"verify", "--dir", empty.path()}).exit_code, 1);
  EXPECT_TRUE(empty.names().empty());
  EXPECT_EQ(run_command({"verify"}).exit_code, 2);
  EXPECT_EQ(run_command({"verify", "--dir", empty.path(), "--commit", "-1"}).exit_code, 2);
  EXPECT_EQ(run_command({"verify", "--dir", empty.path(), "--commit", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace sluice::tools
