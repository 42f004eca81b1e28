#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "store/superblock.hpp"
#include "store_fixture.hpp"
#include "support/child.hpp"

namespace sluice::store {
namespace {

using sim::Child;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

class ExistingTest : public StoreTest {
 protected:
  /// A process that has made a store with these options and lives.
  std::unique_ptr<Child> run(const StoreOptions& options) {
    auto child = std::make_unique<Child>([&] {
      auto store = replace(options);
      const Status status = store.status();
      if (store.ok()) (*store).release();
      return status.to_string();
    });
    EXPECT_EQ(child->report(), "Ok");
    return child;
  }
  /// What such a process leaves when it is killed.
  void leave_dead_run(const StoreOptions& options) { run(options)->kill(); }

  /// What `data` of drive a begins with instead.
  template <class Bytes>
  void overwrite(const Bytes& bytes) {
    std::fstream file(rank_path("a") + "/data", std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(
        file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())));
  }
  Superblock superblock() {
    std::ifstream file(rank_path("a") + "/data", std::ios::binary);
    SuperblockBytes bytes;
    file.read(reinterpret_cast<char*>(bytes.data()), kSuperblockBytes);
    return *decode(bytes);
  }
  std::unique_ptr<Store> created(const StoreOptions& options) const {
    auto store = replace(options);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(*store) : nullptr;
  }
  Status refusal(const StoreOptions& options) const { return replace(options).status(); }
  /// Another run's options: all names are new.
  StoreOptions next_run() {
    StoreOptions options = options_;
    options.store_id = 0xdef;
    return options;
  }
};

TEST_F(ExistingTest, DeadScratchRunIsReplaced) {
  leave_dead_run(options_);
  EXPECT_THAT(names(), Not(IsEmpty()));
  const auto store = created(next_run());
  EXPECT_THAT(names(), Not(Contains(HasSubstr("abc"))));
}

TEST_F(ExistingTest, DeadScratchRunOfTheSameNameIsReplaced) {
  leave_dead_run(options_);
  auto store = created(options_);
  SuperblockBytes bytes;
  ASSERT_TRUE(store->data(0).read_exact(0, bytes).ok());
  EXPECT_TRUE(store->close().ok());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(ExistingTest, SlotsOfADeadRunAreNeverReadAsOnesOwn) {
  leave_dead_run(options_);
  overwrite(std::string(reinterpret_cast<const char*>(encode(superblock()).data()), 512) +
            std::string(4096, 'x'));
  const auto store = created(options_);
  std::vector<std::byte> bytes(8192);
  ASSERT_TRUE(store->data(0).read_exact(4096, bytes).ok());
  EXPECT_TRUE(is_blank(bytes));
}

TEST_F(ExistingTest, LiveRunOfAnotherProcessIsRefusedByItsPid) {
  const auto live = run(options_);
  const auto before = names();
  for (const StoreOptions& options : {options_, next_run()}) {
    const Status status = refusal(options);
    ASSERT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("in use by process " + std::to_string(live->pid())));
  }
  EXPECT_EQ(names(), before);
}

TEST_F(ExistingTest, LiveEngineOfThisProcessIsRefusedAndKeepsItsLock) {
  const auto store = created(options_);
  const auto before = names();
  const Status status = refusal(next_run());
  ASSERT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("another engine of this process"));
  EXPECT_EQ(names(), before);
  Child other([&] { return refusal(next_run()).to_string(); });
  EXPECT_THAT(other.report(), HasSubstr("in use by process " + std::to_string(::getpid())));
}

TEST_F(ExistingTest, SecondDriveInUseLeavesTheFirstAsItWas) {
  paths_ = {path("b")};
  const auto live = run(options_);
  paths_ = {path("a"), path("b")};
  const auto before = names();
  EXPECT_EQ(refusal(next_run()).code(), Code::kFailedPrecondition);
  EXPECT_EQ(names(), before);
}

TEST_F(ExistingTest, LargerOldWorldLeavesNothingBehind) {
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    StoreOptions old = options_;
    old.rank = rank;
    old.world = 5;
    leave_dead_run(old);
  }
  std::vector<std::unique_ptr<Store>> stores;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    StoreOptions options = next_run();
    options.rank = rank;
    options.world = 2;
    stores.push_back(created(options));
  }
  EXPECT_THAT(names(), Not(Contains(HasSubstr("abc"))));
}

TEST_F(ExistingTest, OtherRanksOfThisRunAreLeftAlone) {
  options_.world = 2;
  StoreOptions other = options_;
  other.rank = 1;
  const auto live = run(other);
  auto store = created(options_);
  EXPECT_TRUE(store->close().ok());
  EXPECT_TRUE(fs::exists(rank_path("a", "store-0000000000000abc", "rank-00001") + "/data"));
}

TEST_F(ExistingTest, NewerFormatIsRefusedWithItsVersion) {
  leave_dead_run(options_);
  SuperblockBytes bytes = encode(superblock());
  bytes[8] = std::byte{kFormatVersion + 1};
  overwrite(bytes);
  const Status status = refusal(next_run());
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("version " + std::to_string(kFormatVersion + 1)));
  EXPECT_THAT(status.message(), HasSubstr(rank_path("a") + "/data"));
  std::ifstream file(rank_path("a") + "/data", std::ios::binary);
  SuperblockBytes found;
  file.read(reinterpret_cast<char*>(found.data()), kSuperblockBytes);
  EXPECT_EQ(found, bytes);
}

TEST_F(ExistingTest, ForeignAndDamagedContainersAreRefused) {
  leave_dead_run(options_);
  SuperblockBytes bytes = encode(superblock());
  bytes[100] = std::byte{1};
  overwrite(bytes);
  EXPECT_EQ(refusal(next_run()).code(), Code::kDataLoss);
  EXPECT_THAT(refusal(next_run()).message(), HasSubstr("damaged"));
  overwrite(std::string("somebody's holiday pictures"));
  EXPECT_EQ(refusal(next_run()).code(), Code::kDataLoss);
  EXPECT_THAT(refusal(next_run()).message(), HasSubstr("not a Sluice store"));
  EXPECT_TRUE(fs::exists(rank_path("a") + "/data"));
}

TEST_F(ExistingTest, MakingCutShortAtAnyPointIsReplaced) {
  leave_dead_run(options_);
  overwrite(SuperblockBytes{});
  EXPECT_TRUE(replace(next_run()).ok());

  leave_dead_run(options_);
  fs::resize_file(rank_path("a") + "/data", 0);
  EXPECT_TRUE(replace(next_run()).ok());

  leave_dead_run(options_);
  fs::remove(rank_path("a") + "/data");
  EXPECT_TRUE(replace(next_run()).ok());

  fs::create_directories(rank_path("a"));
  EXPECT_TRUE(replace(next_run()).ok());

  fs::create_directories(path("a") + "/store-0000000000000123");
  EXPECT_TRUE(replace(next_run()).ok());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(ExistingTest, GradientsFileOfADeadRunIsRemoved) {
  leave_dead_run(options_);
  std::ofstream(rank_path("a") + "/gradients") << "killed between making and unlinking";
  auto store = created(next_run());
  ASSERT_TRUE(store->close().ok());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(ExistingTest, FilesOfOthersAreNeitherRemovedNorFollowed) {
  leave_dead_run(options_);
  std::ofstream(rank_path("a") + "/notes.txt") << "keep me";
  const auto before = names();
  const Status status = refusal(next_run());
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("notes.txt"));
  EXPECT_EQ(names(), before);
  fs::remove(rank_path("a") + "/notes.txt");

  // Names that only look like a store's.
  std::ofstream(path("a") + "/store-0000000000000001") << "a file";
  fs::create_directory(path("a") + "/store-backup");
  EXPECT_TRUE(replace(next_run()).ok());
  EXPECT_THAT(names(), testing::ElementsAre("a/store-0000000000000001", "a/store-backup"));
}

TEST_F(ExistingTest, LinkInPlaceOfAStoreIsNamedAndNotFollowed) {
  const std::string link = path("a") + "/store-0000000000000abc";
  leave_dead_run(options_);
  fs::rename(link, path("moved"));
  fs::create_directory_symlink(path("moved"), link);
  for (const StoreOptions& options : {options_, next_run()}) {
    EXPECT_EQ(refusal(options).code(), Code::kFailedPrecondition);
    EXPECT_THAT(refusal(options).message(), HasSubstr(link + ": a link in place of a store"));
  }
  EXPECT_TRUE(fs::exists(path("moved") + "/rank-00000/data"));
}

TEST_F(ExistingTest, StoreThatItsUserMayNotOpenIsNamed) {
  ASSERT_EQ(::chmod(temporary_.path().c_str(), 0755), 0);
  for (const char* drive : {"a", "b"}) ASSERT_EQ(::chmod(path(drive).c_str(), 0777), 0);
  Child child([&] {
    if (!sim::become_nobody()) return std::string("skip");
    auto store = replace(options_);
    if (!store.ok()) return store.status().to_string();
    (*store)->keep();
    if (!(*store)->close().ok()) return std::string("not closed");
    const std::string directory = path("a") + "/store-0000000000000abc";
    if (::chmod(directory.c_str(), 0) != 0) return std::string("not closed to its user");
    const Status status = refusal(next_run());
    ::chmod(directory.c_str(), 0700);
    return std::string(code_name(status.code())) + " " + status.message();
  });
  if (child.report() == "skip") GTEST_SKIP() << "cannot give up root here";
  EXPECT_THAT(child.report(), testing::AllOf(HasSubstr("FailedPrecondition"), HasSubstr("may not open"),
                                             HasSubstr(path("a") + "/store-0000000000000abc")));
}

TEST_F(ExistingTest, ProcessesThatStartAtOnceLeaveOneWinner) {
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Child>> children;
    for (std::uint64_t id = 1; id <= 4; ++id) {
      children.push_back(std::make_unique<Child>([&] {
        StoreOptions options = options_;
        options.store_id = id;
        auto store = replace(options);
        const bool ok = store.ok();
        if (ok) (*store).release();
        return std::string(ok ? "won" : code_name(store.status().code()));
      }));
    }
    std::vector<std::string> reports;
    for (const auto& child : children) reports.push_back(child->report());
    EXPECT_THAT(reports, UnorderedElementsAre("won", "FailedPrecondition", "FailedPrecondition",
                                              "FailedPrecondition"));
  }
}

TEST_F(ExistingTest, ThreadsThatStartAtOnceLeaveOneWinner) {
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Store>> stores(4);
    std::vector<Code> codes(4);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < stores.size(); ++i) {
      threads.emplace_back([&, i] {
        StoreOptions options = options_;
        options.store_id = i;
        auto store = replace(options);
        codes[i] = store.status().code();
        if (store.ok()) stores[i] = std::move(*store);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(codes, UnorderedElementsAre(Code::kOk, Code::kFailedPrecondition, Code::kFailedPrecondition,
                                            Code::kFailedPrecondition));
  }
}

}  // namespace
}  // namespace sluice::store
