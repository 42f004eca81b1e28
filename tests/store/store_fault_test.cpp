#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "store_fixture.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"

namespace sluice::store {
namespace {

using sim::become_nobody;
using sim::Child;
using sim::mount_tmpfs;
using sim::remount_read_only;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using StoreFaultTest = StoreTest;

TEST_F(StoreFaultTest, MissingDirectoryIsNamed) {
  paths_[1] = path("missing");
  const Status status = refusal();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(path("missing")));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreFaultTest, StoreNeedsADirectory) {
  paths_.clear();
  EXPECT_EQ(refusal().code(), Code::kInvalidArgument);
}

TEST_F(StoreFaultTest, PlainFileIsNoDirectory) {
  std::ofstream(path("file")) << "text";
  paths_[1] = path("file");
  EXPECT_EQ(refusal().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refusal().message(), AllOf(HasSubstr(path("file")), HasSubstr("not a directory")));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreFaultTest, DanglingLinkIsNamed) {
  fs::create_symlink(path("nowhere"), path("link"));
  paths_[1] = path("link");
  EXPECT_EQ(refusal().code(), Code::kNotFound);
  EXPECT_THAT(refusal().message(), HasSubstr(path("link")));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreFaultTest, LinkToADirectoryThatIsNamedIsTheUsersWish) {
  fs::create_directory_symlink(path("b"), path("link"));
  paths_[1] = path("link");
  EXPECT_TRUE(create(options_).ok());
}

TEST_F(StoreFaultTest, DirectoryNamedTwiceIsRefused) {
  fs::create_directory_symlink(path("a"), path("link"));
  for (const std::string& again : {path("a"), path("b") + "/../a", path("link")}) {
    paths_[1] = again;
    EXPECT_EQ(refusal().code(), Code::kInvalidArgument);
    EXPECT_THAT(refusal().message(), AllOf(HasSubstr(again), HasSubstr("the same")));
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreFaultTest, DirectoryThatMayNotBeWrittenIsRefused) {
  ASSERT_EQ(::chmod(temporary_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path("a").c_str(), 0555), 0);
  Child child([&] {
    if (!become_nobody()) return std::string("skip");
    const Status status = refusal();
    return std::string(code_name(status.code())) + " " + status.message();
  });
  child.report();
  ASSERT_EQ(::chmod(path("a").c_str(), 0755), 0);
  if (child.report() == "skip") GTEST_SKIP() << "cannot give up root here";
  EXPECT_THAT(child.report(),
              AllOf(HasSubstr("FailedPrecondition"), HasSubstr(path("a")), HasSubstr("may not write")));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreFaultTest, StoreOfAnotherUserIsNotLookedInto) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  ASSERT_EQ(::chmod(temporary_.path().c_str(), 0755), 0);
  for (const char* drive : {"a", "b"}) ASSERT_EQ(::chmod(path(drive).c_str(), 0777), 0);
  const auto roots = created();
  const auto before = names();
  Child child([&] {
    if (!become_nobody()) return std::string("skip");
    StoreOptions options = options_;
    options.store_id = 0xdef;
    return replace(options).status().to_string();
  });
  if (child.report() == "skip") GTEST_SKIP() << "cannot give up root here";
  EXPECT_EQ(child.report(), "Ok");
  EXPECT_EQ(names(), before);
}

/// Runs `body` in a child in which drive a is a tmpfs of `bytes`.
template <class Body>
std::string on_tmpfs(const std::string& path, std::uint64_t bytes, Body body) {
  Child child([&] { return mount_tmpfs(path, bytes) ? body() : std::string("skip"); });
  return child.report();
}

TEST_F(StoreFaultTest, FullDriveIsToldWithTheArithmeticAndLeavesNothingHalfMade) {
  const std::string report = on_tmpfs(path("b"), 256 << 10, [&] {
    const Status status = refusal();
    return std::string(code_name(status.code())) + " " + status.message() +
           (names().empty() ? "" : " LEFT " + names()[0]);
  });
  if (report == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_THAT(report, AllOf(HasSubstr("NoSpace"), HasSubstr(rank_path("b")), HasSubstr("available")));
  EXPECT_THAT(report, Not(HasSubstr("LEFT")));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreFaultTest, DriveThatIsFullForTheGradientsAloneLeavesNothingHalfMade) {
  options_.spilled_gradient_slots = 100;
  const std::string report = on_tmpfs(path("b"), 1 << 20, [&] {
    const Status status = refusal();
    return std::string(code_name(status.code())) + (names().empty() ? "" : " LEFT " + names()[0]);
  });
  if (report == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_EQ(report, "NoSpace");
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreFaultTest, StoreWithCommitsThatCannotBeMadeDurableIsNotMade) {
  options_.keep_commits = 1;
  options_.record_bytes_max = 4096;
  options_.parameters = parameters_;
  ASSERT_TRUE(create(options_).ok());
  for (const long call : {SYS_fdatasync, SYS_fsync}) {
    Child child([&] {
      if (!sim::refuse({{.call = call, .error = EIO}})) return std::string("skip");
      const Status status = refusal();
      return std::string(code_name(status.code())) + (names().empty() ? "" : " LEFT " + names()[0]);
    });
    if (child.report() == "skip") GTEST_SKIP() << "cannot refuse system calls here";
    EXPECT_EQ(child.report(), "IoError");
  }
  options_.keep_commits = 0;
  Child scratch([&] {
    if (!sim::refuse({{.call = SYS_fdatasync, .error = EIO}, {.call = SYS_fsync, .error = EIO}})) {
      return std::string("Ok");
    }
    return refusal().to_string();
  });
  EXPECT_EQ(scratch.report(), "Ok") << "a scratch store is not waited for";
}

TEST_F(StoreFaultTest, ReadOnlyFileSystemIsTold) {
  const std::string report = on_tmpfs(path("a"), 1 << 20, [&] {
    return remount_read_only(path("a")) ? refusal().to_string() : std::string("skip");
  });
  if (report == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_THAT(report, AllOf(HasSubstr("FailedPrecondition"), HasSubstr("read-only")));
}

TEST_F(StoreFaultTest, DriveWithoutDirectIoIsUsedAndTold) {
  const std::string report = on_tmpfs(path("a"), 4 << 20, [&] {
    auto store = create(options_);
    if (!store.ok()) return store.status().to_string();
    const bool all_told = (*store)->data(0).direct() || (*store)->direct() == "buffered";
    std::string text = all_told ? "told" : "silent";
    for (const std::string& reason : (*store)->fallback_reasons()) text += "; " + reason;
    return text;
  });
  if (report == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_THAT(report, HasSubstr("told"));
}

TEST_F(StoreFaultTest, FilesThatAreGoneAtCloseAreNoError) {
  auto store = created();
  fs::remove_all(path("a") + "/store-0000000000000abc");
  EXPECT_TRUE(store->close().ok());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreFaultTest, CloseTellsOfARemovalThatFailedAndStillRemovesTheOtherDrives) {
  auto store = created();
  std::ofstream(rank_path("a") + "/notes.txt") << "put there while the store lived";
  const Status status = store->close();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(rank_path("a")));
  EXPECT_FALSE(fs::exists(path("b") + "/store-0000000000000abc"));
}

}  // namespace
}  // namespace sluice::store
