#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "made_store.hpp"
#include "run_command.hpp"
#include "tools/store_view.hpp"

namespace sluice::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

nlohmann::json inspect(const std::vector<std::string>& directories) {
  std::vector<std::string> arguments = {"inspect", "--json"};
  for (const std::string& directory : directories) arguments.insert(arguments.end(), {"--dir", directory});
  const CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return result.json().at("stores");
}

TEST(Inspect, ShowsAStoreItsCommitsAndItsParameters) {
  const ScratchDirectory directory;
  MadeStore made({directory.path()}, 2);
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < 3; ++i) {
    made.step();
    numbers.push_back(made.commit("seven b"));
  }
  made.close();

  const nlohmann::json stores = inspect({directory.path()});
  ASSERT_EQ(stores.size(), 1U);
  const nlohmann::json& store = stores[0];
  EXPECT_EQ(store.at("kind"), "durable");
  EXPECT_TRUE(store.at("whole").get<bool>());
  EXPECT_TRUE(store.at("owner_pid").is_null());
  EXPECT_EQ(store.at("keep_commits"), 2);
  EXPECT_EQ(store.at("undo"), "on");
  EXPECT_EQ(store.at("chunk_elements"), 16384);
  EXPECT_EQ(store.at("world"), 1);
  // The places hold one more than are kept.
  const nlohmann::json& newest = store.at("commits").back();
  EXPECT_EQ(newest.at("number"), numbers.back());
  EXPECT_EQ(newest.at("steps"), 3);
  EXPECT_EQ(newest.at("user_bytes"), 7);
  EXPECT_TRUE(newest.at("held_by_all").get<bool>());

  ASSERT_EQ(store.at("parameters").size(), 7U);
  const nlohmann::json& embedding = store.at("parameters")[0];
  EXPECT_EQ(embedding.at("name"), "embedding");
  EXPECT_EQ(embedding.at("shape"), nlohmann::json({300, 100}));
  EXPECT_EQ(embedding.at("policy"), "bf16_split");
  EXPECT_EQ(embedding.at("dtype"), "BF16");
  EXPECT_EQ(embedding.at("bytes"), 300 * 100 * 12);
  EXPECT_EQ(embedding.at("step_count"), 3);
  EXPECT_EQ(embedding.at("aliases"), nlohmann::json({"head"}));
  EXPECT_EQ(store.at("parameters")[5].at("dtype"), "U8");
  EXPECT_EQ(store.at("parameters")[5].at("bytes"), 1000);
  EXPECT_EQ(store.at("state_bytes"), (300 * 100 + 77 + 1 + 40'000) * 12 + 50 * 33 * 2 + 1000);

  const nlohmann::json& drive = store.at("ranks")[0].at("drives")[0];
  EXPECT_EQ(drive.at("directory"), directory.path());
  EXPECT_GT(drive.at("container_bytes").get<std::uint64_t>(), store.at("state_bytes").get<std::uint64_t>());
  EXPECT_GT(drive.at("allocated_bytes").get<std::uint64_t>(), 0U);
  EXPECT_TRUE(drive.contains("device_bytes_written"));
}

TEST(Inspect, UsableAreTheCommitsThatAnEngineGoesOnFrom) {
  const ScratchDirectory directory;
  MadeStore made({directory.path()}, 2);
  for (int i = 0; i < 4; ++i) {
    made.step();
    made.commit();
  }
  made.close();

  const nlohmann::json commits = inspect({directory.path()}).at(0).at("commits");
  ASSERT_EQ(commits.size(), 3U) << "one place more than commits are kept";
  std::size_t usable = 0;
  for (const nlohmann::json& commit : commits) {
    EXPECT_TRUE(commit.at("held_by_all").get<bool>());
    const std::string number = std::to_string(commit.at("number").get<std::uint64_t>());
    const CommandResult verified = run_command({"verify", "--dir", directory.path(), "--commit", number});
    EXPECT_EQ(verified.exit_code == 0, commit.at("usable").get<bool>()) << verified.errors;
    usable += commit.at("usable").get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(usable, 2U);
  EXPECT_THAT(run_command({"inspect", "--dir", directory.path()}).errors, HasSubstr("usable"));
}

TEST(Inspect, LiveStoreIsShownWithItsOwnerAndGoesOn) {
  const ScratchDirectory directory;
  MadeStore made({directory.path()});
  nlohmann::json store = inspect({directory.path()}).at(0);
  EXPECT_EQ(store.at("owner_pid"), getpid());
  EXPECT_EQ(store.at("kind"), "without a commit");
  made.step();
  made.commit();
  store = inspect({directory.path()}).at(0);
  EXPECT_EQ(store.at("kind"), "durable");
  EXPECT_EQ(store.at("owner_pid"), getpid());
  made.step();
  made.commit();
  made.close();
  EXPECT_TRUE(inspect({directory.path()}).at(0).at("owner_pid").is_null());
}

TEST(Inspect, ScratchStoreIsOne) {
  const ScratchDirectory directory;
  MadeStore made({directory.path()}, 0);
  EXPECT_EQ(inspect({directory.path()}).at(0).at("kind"), "scratch");
  made.close();
}

TEST(Inspect, MissingDriveIsNamed) {
  const ScratchDirectory first, second;
  MadeStore made({first.path(), second.path()});
  made.step();
  made.commit();
  made.close();
  EXPECT_TRUE(inspect({second.path(), first.path()}).at(0).at("whole").get<bool>());
  const nlohmann::json store = inspect({second.path()}).at(0);
  EXPECT_FALSE(store.at("whole").get<bool>());
  ASSERT_EQ(store.at("missing").size(), 1U);
  EXPECT_THAT(store.at("missing")[0].get<std::string>(), HasSubstr("drive 0 of 2"));
  EXPECT_FALSE(store.at("commits").back().at("held_by_all").get<bool>());
  EXPECT_FALSE(store.at("commits").back().at("usable").get<bool>());
  EXPECT_THAT(store.at("trouble").get<std::string>(), HasSubstr("drive 0 of 2"));
}

TEST(Inspect, MissingRanksAreBoundedWhateverTheWorld) {
  const ScratchDirectory directory;
  MadeStore made({directory.path()}, 0);
  const auto views = look_at_stores({directory.path()});
  ASSERT_TRUE(views.ok()) << views.status().to_string();
  const store::ExistingRank& rank = views->front().ranks.front();
  store::Superblock superblock = *rank.superblock;
  superblock.world = 0xffffffff;
  const store::SuperblockBytes bytes = encode(superblock);
  std::fstream file(rank.drives.front().data->path(), std::ios::in | std::ios::out | std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  file.close();
  const nlohmann::json missing = inspect({directory.path()}).at(0).at("missing");
  ASSERT_EQ(missing.size(), 9U);
  EXPECT_EQ(missing.front(), "rank 1 of 4294967295");
  EXPECT_EQ(missing.back(), "4294967286 more ranks of 4294967295");
  made.close();
}

TEST(Inspect, StoreThatGoesWhileItIsLookedAtIsNotThere) {
  const ScratchDirectory directory;
  const std::string store = directory.path() + "/store-0000000000000abc";
  std::atomic<bool> ended = false;
  std::thread other([&] {
    while (!ended) {
      std::filesystem::create_directory(store);
      std::filesystem::remove(store);
    }
  });
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    const auto views = look_at_stores({directory.path()});
    EXPECT_TRUE(views.ok()) << views.status().to_string();
  }
  ended = true;
  other.join();
}

TEST(Inspect, EmptyDirectoryHoldsNoneAndStaysEmpty) {
  const ScratchDirectory directory;
  EXPECT_TRUE(inspect({directory.path()}).empty());
  EXPECT_TRUE(directory.names().empty());
}

TEST(Inspect, DirectoryThatIsMissingIsBadUsage) {
  EXPECT_EQ(run_command({"inspect"}).exit_code, 2);
  EXPECT_EQ(run_command({"inspect", "--dir", "/no/such/place"}).exit_code, 2);
}

}  // namespace
}  // namespace sluice::tools
