#include <fstream>
#include <iterator>

#include "engine/rewriting_engine.hpp"
#include "support/after_crash.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::IsOk;
using sim::RewriteTest;

using testing::Contains;
using testing::HasSubstr;

/// What a start goes on from, and what it is asked about.
class GoOnTest : public RewriteTest {
 protected:
  /// Every file beneath the directories but what says who has them open, by its path, whole.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const std::string& directory : options.directories)
      for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
        if (entry.path().filename() == "owner") continue;
        std::string& bytes = all[entry.path().string()];
        if (!entry.is_regular_file()) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(file), {});
      }
    return all;
  }
  /// Commits after each of three steps, and closes. Returns: the states.
  std::vector<State> make_three_commits() {
    options.keep_commits = 3;
    open();
    std::vector<State> states;
    for (int i = 0; i < 3; ++i) {
      step_all();
      commit();
      states.push_back(state_of_all());
    }
    EXPECT_THAT(engine->close(), IsOk());
    return states;
  }
};

TEST_F(GoOnTest, AddedAndRemovedTiesKeepEveryBit) {
  const State expected = make_committed();
  aliases = {{"z", "a"}, {"y", "d"}};
  expect_rewritten(expected);
  aliases = {{"z", "a"}};
  ASSERT_THAT(engine->close(), IsOk());
  open();
  EXPECT_TRUE(report.recovered->rewritten);
  EXPECT_THAT(report.recovered->differences, Contains(HasSubstr("tied")));
  EXPECT_EQ(state_of_all(), expected);
}

TEST_F(GoOnTest, ATieWhoseNamesAreSwappedKeepsEveryBit) {
  aliases = {{"z", "a"}};
  State expected = make_committed();
  model[0].name = "z";
  aliases = {{"a", "z"}};
  expected["z"] = expected["a"];
  expected.erase("a");
  expect_rewritten(expected);
}

TEST_F(GoOnTest, ATieThatMovesToAnotherParameterTakesThatOnesState) {
  aliases = {{"z", "a"}};
  const State expected = make_committed();
  aliases = {{"z", "d"}};
  open();
  EXPECT_TRUE(report.recovered->rewritten);
  EXPECT_EQ(state_of_all(), expected);
}

TEST_F(GoOnTest, NamesThatWereTiedBothTakeTheState) {
  aliases = {{"z", "a"}};
  const State expected = make_committed();
  model.push_back({"z", {2, 20'000}});
  aliases = {};
  open();
  EXPECT_EQ(state(id("z")), expected.at("a"));
  EXPECT_EQ(state(id("a")), expected.at("a"));
}

TEST_F(GoOnTest, AnOlderCommitIsRewrittenWhenItIsAskedFor) {
  const std::vector<State> states = make_three_commits();
  options.chunk_elements = 32 << 10;
  options.recover_commit = 2;
  open();
  EXPECT_TRUE(report.recovered->rewritten);
  EXPECT_EQ(report.recovered->commit, 2U);
  EXPECT_EQ(report.recovered->step, 2U);
  EXPECT_EQ(state_of_all(), states[1]);
  EXPECT_EQ(stores(), 1U);
  ASSERT_THAT(engine->close(), IsOk());
  options.recover_commit = 0;
  open();
  EXPECT_EQ(report.recovered->commit, 2U);
  EXPECT_EQ(state_of_all(), states[1]);
  options.recover_commit = 3;  // it went with the old store
  ASSERT_THAT(engine->close(), IsOk());
  EXPECT_THAT(try_open(), Fails(Code::kNotFound, HasSubstr("commit 3")));
}

TEST_F(GoOnTest, LessRoomForUserBytesThanThereAreIsRefusedByName) {
  const State expected = make_committed();
  const auto before = files();
  for (const std::uint32_t chunk : {16U << 10, 32U << 10}) {
    options.chunk_elements = chunk;
    options.max_user_bytes = 8;
    EXPECT_THAT(try_open(),
                Fails(Code::kInvalidArgument, HasSubstr("max_user_bytes = 8 is too small for the 9")));
    engine.reset();
    EXPECT_TRUE(files() == before);
  }
  options.chunk_elements = 16 << 10;
  options.max_user_bytes = 9;
  open();
  EXPECT_EQ(state_of_all(), expected);
}

TEST_F(GoOnTest, MoreRoomForUserBytesIsMade) {
  const State expected = make_committed();
  options.max_user_bytes = 100'000;
  open();
  EXPECT_TRUE(report.recovered->rewritten);
  EXPECT_EQ(state_of_all(), expected);
  EXPECT_THAT(engine->commit(std::vector<std::byte>(100'000), CommitMode::kWait), IsOk());
}

TEST_F(GoOnTest, WhatIsNotAcceptedLeavesEveryFileAsItWas) {
  const std::vector<State> states = make_three_commits();
  const auto before = files();
  const sim::TemporaryDirectory other;
  struct Case {
    const char* what;
    std::uint32_t chunk_elements;
    std::uint64_t recover_commit;
    std::uint64_t expected_commit;
  };
  for (const Case& asked :
       {Case{"in place", kChunk, 0, 3}, Case{"in place, an older one", kChunk, 2, 2},
        Case{"rewritten", 32 << 10, 0, 3}, Case{"rewritten, an older one", 32 << 10, 1, 1}}) {
    SCOPED_TRACE(asked.what);
    options.chunk_elements = asked.chunk_elements;
    options.recover_commit = asked.recover_commit;
    std::uint64_t seen = 0;
    options.accept = [&](const Recovered& recovered) {
      EXPECT_EQ(recovered.user_bytes, std::vector<std::byte>(9, std::byte{5}));
      EXPECT_EQ(recovered.rewritten, asked.chunk_elements != kChunk);
      EXPECT_EQ(recovered.groups.size(), model.size());
      EXPECT_EQ(recovered.step, asked.expected_commit);
      seen = recovered.commit;
      return Status(Code::kUnavailable, "not this one");
    };
    EXPECT_THAT(try_open(), Fails(Code::kUnavailable, HasSubstr("not this one")));
    EXPECT_EQ(seen, asked.expected_commit);
    engine.reset();
    EXPECT_TRUE(files() == before);
  }
  options.chunk_elements = kChunk;
  options.recover_commit = 0;
  options.accept = [](const Recovered&) { return Status(); };
  open();
  EXPECT_EQ(state_of_all(), states[2]);
}

TEST_F(GoOnTest, NothingIsAskedOfANewStore) {
  options.accept = [](const Recovered&) { return Status(Code::kUnavailable, "never called"); };
  open();
  EXPECT_FALSE(report.recovered.has_value());
}

TEST_F(GoOnTest, StepsAreCountedFromTheFirstOneAndThenFromTheCommit) {
  options.first_step = 7;
  open();
  Pass pass = begin();
  give(pass, id("c"), Values(1, 0.5f));
  EXPECT_EQ(step(pass).step, 8U);
  commit();
  ASSERT_THAT(engine->close(), IsOk());
  options.first_step = 100;
  open();
  EXPECT_EQ(report.recovered->step, 8U);
  step_all();
  commit();
  ASSERT_THAT(engine->close(), IsOk());
  options.chunk_elements = 32 << 10;
  open();
  EXPECT_TRUE(report.recovered->rewritten);
  EXPECT_EQ(report.recovered->step, 9U);
}

TEST_F(GoOnTest, AScratchStoreOfADeadRunIsReplacedUnlessItIsRefused) {
  options.keep_commits = 0;
  open();
  options.host_budget_bytes = report.least_host_bytes;
  ASSERT_THAT(engine->close(), IsOk());
  open();
  // As the run would leave it if it died now.
  const sim::TemporaryDirectory dead;
  sim::copy_after_crash(options.directories.front(), dead.path());
  engine.reset();
  options.directories = {dead.path()};
  const auto before = files();
  ASSERT_FALSE(before.empty());
  for (const std::uint32_t keep_commits : {0U, 1U}) {
    options.keep_commits = keep_commits;
    options.existing = OnExisting::kRefuse;
    options.host_budget_bytes = kUnlimited;  // so that the store alone is what can be refused
    EXPECT_THAT(try_open(), Fails(Code::kAlreadyExists, HasSubstr(dead.path())));
    engine.reset();
    EXPECT_TRUE(files() == before);
  }
  options.existing = OnExisting::kReplaceScratch;
  open();
  EXPECT_FALSE(report.recovered.has_value());
  EXPECT_EQ(stores(), 1U);
}

TEST_F(GoOnTest, UnrelatedStoresInTwoDirectoriesAreRefusedNamingBoth) {
  const State expected = make_committed();
  const sim::TemporaryDirectory other;
  const std::string first = options.directories.front();
  options.directories = {other.path()};
  (void)make_committed();
  options.directories = {first, other.path()};
  const auto before = files();
  EXPECT_THAT(try_open(), Fails(Code::kFailedPrecondition, HasSubstr("neither was made from the other")));
  engine.reset();
  EXPECT_TRUE(files() == before);
  options.directories = {first};
  open();
  EXPECT_EQ(state_of_all(), expected);
}

}  // namespace
}  // namespace sluice
