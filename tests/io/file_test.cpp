#include "io/file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "support/child.hpp"
#include "support/refusal.hpp"
#include "support/sim_world.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::io {
namespace {

using sim::in_child;
using sim::refuse;
using testing::ElementsAre;
using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  std::string in(const std::string& name) const { return temporary_.path() + "/" + name; }
  Result<File> open(const std::string& name, Creation creation, Caching caching = Caching::kDirect,
                    Access access = Access::kReadWrite) const {
    return File::open(directory_, name, {.access = access, .creation = creation, .caching = caching});
  }

  sim::TemporaryDirectory temporary_;
  Directory directory_ = Directory::open(temporary_.path(), Access::kReadWrite).value();
};
class DirectoryTest : public FileTest {};

void expect_refused(const Status& status, Code code, const std::string& path) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(path));
}

TEST_F(DirectoryTest, SaysWhyAPlaceIsNotADirectory) {
  ASSERT_TRUE(open("plain", Creation::kExclusive).ok());
  std::filesystem::create_symlink(in("nowhere"), in("dangling"));
  expect_refused(Directory::open(in("missing"), Access::kReadWrite).status(), Code::kNotFound, in("missing"));
  expect_refused(Directory::open(in("plain"), Access::kReadWrite).status(), Code::kFailedPrecondition,
                 in("plain"));
  const Status dangling = Directory::open(in("dangling"), Access::kReadWrite).status();
  expect_refused(dangling, Code::kNotFound, in("dangling"));
  EXPECT_THAT(dangling.message(), HasSubstr("link"));
}

TEST_F(DirectoryTest, AReadOnlyPlaceIsRefusedForWritingOnly) {
  const std::string path = temporary_.path();
  for (const int error : {EROFS, EACCES}) {
    const std::string said = in_child([&]() -> std::string {
      if (!refuse({{.call = SYS_faccessat2, .error = error}, {.call = SYS_faccessat, .error = error}}))
        return "no seccomp here";
      if (!Directory::open(path, Access::kReadOnly).ok()) return "not even for reading";
      return Directory::open(path, Access::kReadWrite).status().to_string();
    });
    EXPECT_THAT(said, HasSubstr("FailedPrecondition (native " + std::to_string(error) + "): " + path));
  }
}

TEST_F(DirectoryTest, StaysTheSamePlaceAfterAChdir) {
  const std::string above = std::filesystem::path(temporary_.path()).parent_path();
  const std::string name = std::filesystem::path(temporary_.path()).filename();
  EXPECT_EQ(in_child([&]() -> std::string {
              if (::chdir(above.c_str()) != 0) return "no chdir";
              const Result<Directory> relative = Directory::open(name, Access::kReadWrite);
              if (!relative.ok() || ::chdir("/") != 0) return relative.status().to_string();
              return File::open(*relative, "here", {.creation = Creation::kExclusive}).status().to_string();
            }),
            "Ok");
  EXPECT_TRUE(std::filesystem::exists(in("here")));
}

TEST_F(DirectoryTest, SubdirectoriesArePrivateAndNeverLinks) {
  ASSERT_TRUE(directory_.subdirectory("made", Creation::kExclusive).ok());
  EXPECT_EQ(std::filesystem::status(in("made")).permissions(), std::filesystem::perms::owner_all);
  EXPECT_TRUE(directory_.subdirectory("made", Creation::kIfMissing).ok());
  EXPECT_EQ(directory_.subdirectory("made", Creation::kExclusive).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(directory_.subdirectory("absent", Creation::kNever).status().code(), Code::kNotFound);
  std::filesystem::create_directory_symlink(in("made"), in("link"));
  expect_refused(directory_.subdirectory("link", Creation::kIfMissing).status(), Code::kFailedPrecondition,
                 in("link"));
  for (const char* name : {"", ".", "..", "a/b", "/"}) {
    EXPECT_EQ(directory_.subdirectory(name, Creation::kIfMissing).status().code(), Code::kInvalidArgument);
  }
}

TEST_F(DirectoryTest, ReopenedIsTheSameDirectoryAndAnotherHolderOfItsLock) {
  const Result<Directory> again = directory_.reopen();
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  ASSERT_TRUE(again->subdirectory("made", Creation::kExclusive).ok());
  EXPECT_TRUE(std::filesystem::exists(in("made")));
  EXPECT_EQ(again->path(), directory_.path());
  ASSERT_EQ(::flock(directory_.fd(), LOCK_EX | LOCK_NB), 0);
  EXPECT_NE(::flock(again->fd(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(DirectoryTest, ListsRenamesAndRemoves) {
  ASSERT_TRUE(open("b", Creation::kExclusive).ok());
  ASSERT_TRUE(directory_.subdirectory("a", Creation::kExclusive).ok());
  EXPECT_THAT(*directory_.names(), ElementsAre("a", "b"));
  EXPECT_TRUE(directory_.rename("b", "c").ok());
  EXPECT_TRUE(directory_.remove("a").ok());
  EXPECT_THAT(*directory_.names(), ElementsAre("c"));
  EXPECT_TRUE(directory_.remove("c").ok());
  EXPECT_EQ(directory_.remove("c").code(), Code::kNotFound);
  EXPECT_TRUE(directory_.sync().ok());
  EXPECT_GT(directory_.space()->available_bytes, 0u);
}

TEST_F(FileTest, IsPrivateAndClosedOnExec) {
  const Result<File> file = open("data", Creation::kExclusive);
  ASSERT_TRUE(file.ok());
  struct stat found;
  ASSERT_EQ(::fstat(file->fd(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777u, 0600u);
  EXPECT_TRUE(::fcntl(file->fd(), F_GETFD) & FD_CLOEXEC);
}

TEST_F(FileTest, RefusesLinksDirectoriesAndWhatIsTakenOrMissing) {
  ASSERT_TRUE(open("data", Creation::kExclusive).ok());
  std::filesystem::create_symlink(in("data"), in("link"));
  std::filesystem::create_directory(in("folder"));
  ASSERT_EQ(::mkfifo(in("pipe").c_str(), 0600), 0);
  expect_refused(open("link", Creation::kNever).status(), Code::kFailedPrecondition, in("link"));
  expect_refused(open("folder", Creation::kNever).status(), Code::kFailedPrecondition, in("folder"));
  expect_refused(open("pipe", Creation::kNever).status(), Code::kFailedPrecondition, in("pipe"));
  expect_refused(open("data", Creation::kExclusive).status(), Code::kAlreadyExists, in("data"));
  expect_refused(open("absent", Creation::kNever).status(), Code::kNotFound, in("absent"));
}

TEST_F(FileTest, ABufferedFileHasNoGrid) {
  const Result<File> file = open("data", Creation::kExclusive, Caching::kBuffered);
  EXPECT_FALSE(file->direct());
  EXPECT_EQ(file->grid().offset_bytes, 1u);
  EXPECT_EQ(file->fallback_reason(), "");
}

TEST_F(FileTest, ODirectRefusedAtOpenFallsBackWithTheReasonAndLeavesNoTrace) {
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!refuse({{.call = SYS_fcntl, .error = EINVAL, .argument = 2, .any_of_bits = O_DIRECT}}))
                return "no seccomp here";
              const Result<File> file = open("data", Creation::kExclusive);
              if (!file.ok()) return file.status().to_string();
              const std::byte byte{5};
              if (file->direct() || !file->write_exact(0, {&byte, 1}).ok()) return "direct";
              return file->fallback_reason();
            }),
            "O_DIRECT refused at open: Invalid argument; using the page cache");
}

TEST_F(FileTest, ODirectRefusedAtTheFirstTransferFallsBackWithTheReason) {
  std::filesystem::resize_file(in("old"), (std::ofstream(in("old")), 1 << 20));
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!refuse({{.call = SYS_pread64, .error = EINVAL}, {.call = SYS_pwrite64, .error = EINVAL}}))
                return "no seccomp here";
              const Result<File> old = open("old", Creation::kNever);
              Result<File> made = open("made", Creation::kExclusive);
              if (!old.ok() || !made.ok() || !made->preallocate(1 << 20).ok()) return "not opened";
              if (old->direct() || made->direct() || (::fcntl(made->fd(), F_GETFL) & O_DIRECT) != 0)
                return "direct";
              return old->fallback_reason() + ", " + made->fallback_reason();
            }),
            "O_DIRECT refused at the first read; using the page cache, O_DIRECT refused at the first write; "
            "using the page cache");
}

TEST_F(FileTest, AGridCoarserThanToldIsFoundByTrying) {
  std::filesystem::resize_file(in("old"), (std::ofstream(in("old")), 1 << 20));
  if (!open("old", Creation::kNever)->direct()) GTEST_SKIP() << "no O_DIRECT here";
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!refuse({{.call = SYS_pread64, .error = EINVAL, .argument = 2, .below = 16384},
                           {.call = SYS_pwrite64, .error = EINVAL, .argument = 2, .below = 16384}})) {
                return "no seccomp here";
              }
              const Result<File> old = open("old", Creation::kNever);
              Result<File> made = open("made", Creation::kExclusive);
              if (!old.ok() || !made.ok() || !made->preallocate(1 << 20).ok()) return "not opened";
              std::vector<std::byte> odd(1000);
              if (!made->write_exact(77, odd).ok() || !made->read_exact(77, odd).ok()) return "off the grid";
              return std::to_string(old->grid().offset_bytes) + " " +
                     std::to_string(made->grid().memory_bytes);
            }),
            "16384 16384");
}

TEST_F(FileTest, AGridCoarserThanToldIsFoundBeforeZerosAreWritten) {
  std::filesystem::resize_file(in("old"), (std::ofstream(in("old")), 1 << 20));
  if (!open("old", Creation::kNever)->direct()) GTEST_SKIP() << "no O_DIRECT here";
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!refuse({{.call = SYS_fallocate, .error = EOPNOTSUPP},
                           {.call = SYS_pwrite64, .error = EINVAL, .argument = 2, .below = 16384}})) {
                return "no seccomp here";
              }
              Result<File> made = open("made", Creation::kExclusive);
              const Status status = made->preallocate(3 << 20);
              if (!status.ok()) return status.to_string();
              return std::to_string(made->grid().offset_bytes) + " " + std::to_string(*made->size());
            }),
            "16384 3145728");
}

TEST_F(FileTest, PreallocationReservesEveryBlock) {
  Result<File> file = open("data", Creation::kExclusive);
  ASSERT_TRUE(file->preallocate(5'000'000).ok());
  EXPECT_EQ(*file->size(), 5'000'000u);
  EXPECT_TRUE(file->preallocate(1000).ok());  // never shrinks
  EXPECT_EQ(*file->size(), 5'000'000u);
  struct stat found;
  ASSERT_EQ(::fstat(file->fd(), &found), 0);
  EXPECT_GE(found.st_blocks * 512, 5'000'000);
}

TEST_F(FileTest, PreallocationWithoutReservationWritesZerosInsteadOfAHole) {
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!refuse({{.call = SYS_fallocate, .error = EOPNOTSUPP}})) return "no seccomp here";
              Result<File> file = open("data", Creation::kExclusive);
              const Status status = file->preallocate(3'000'001);
              struct stat found;
              if (!status.ok() || ::fstat(file->fd(), &found) != 0) return status.to_string();
              return found.st_size == 3'000'001 && found.st_blocks * 512 >= 3'000'001 ? "full" : "sparse";
            }),
            "full");
}

TEST_F(FileTest, PreallocationBeyondTheDriveSaysWhatIsNeededAndAvailable) {
  Result<File> file = open("data", Creation::kExclusive);
  ASSERT_TRUE(file->preallocate(8192).ok());
  const Status status = file->preallocate(std::uint64_t{1} << 60);
  expect_refused(status, Code::kNoSpace, in("data"));
  EXPECT_THAT(status.message(), testing::MatchesRegex(".*needs [0-9]+ bytes more, [0-9]+ are available"));
  EXPECT_EQ(*file->size(), 8192u);
}

TEST_F(FileTest, ADriveThatFillsWhileReservingLeavesTheFileAsItWas) {
  for (const int error : {ENOSPC, EDQUOT}) {
    EXPECT_THAT(in_child([&]() -> std::string {
                  if (!refuse({{.call = SYS_fallocate, .error = error}})) return "no seccomp here";
                  Result<File> file = open("data", Creation::kIfMissing);
                  const Status status = file->preallocate(1 << 20);
                  return *file->size() == 0 ? status.to_string() : "grown";
                }),
                HasSubstr("NoSpace (native " + std::to_string(error) + "): preallocating " + in("data") +
                          ": needs 1048576 bytes"));
  }
}

TEST_F(FileTest, ExactReadsAndWritesWorkOnAnyAlignment) {
  const std::uint64_t seed = sim::seed_or(99);
  SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const Caching caching : {Caching::kDirect, Caching::kBuffered}) {
    const Result<File> file =
        open(caching == Caching::kDirect ? "direct" : "buffered", Creation::kExclusive, caching);
    std::vector<std::byte> model(3 << 20);
    ASSERT_TRUE(file->write_exact(0, model).ok());
    for (int round = 0; round < 60; ++round) {
      const std::size_t offset = random() % model.size();
      const std::size_t most = round % 10 == 0 ? model.size() : 10'000;
      const std::size_t bytes = random() % (std::min(most, model.size() - offset) + 1);
      for (std::size_t i = 0; i < bytes; ++i) model[offset + i] = static_cast<std::byte>(random());
      ASSERT_TRUE(file->write_exact(offset, {model.data() + offset, bytes}).ok());
      const std::size_t from = random() % model.size();
      std::vector<std::byte> read(random() % std::min<std::size_t>(model.size() - from + 1, 20'000));
      ASSERT_TRUE(file->read_exact(from, read).ok());
      ASSERT_TRUE(std::equal(read.begin(), read.end(), model.begin() + static_cast<std::ptrdiff_t>(from)));
    }
    std::vector<std::byte> all(model.size());
    ASSERT_TRUE(file->read_exact(0, all).ok());
    EXPECT_TRUE(all == model);
    EXPECT_TRUE(file->flush().ok());
  }
}

TEST_F(FileTest, ADirectFileGrowsByZerosToItsGrid) {
  const Result<File> file = open("data", Creation::kExclusive);
  const std::uint32_t grid = file->grid().offset_bytes;
  std::vector<std::byte> ones(100, std::byte{1}), read(grid);
  ASSERT_TRUE(file->write_exact(0, ones).ok());
  ASSERT_EQ(*file->size(), file->direct() ? grid : 100u);
  if (!file->direct()) return;
  ASSERT_TRUE(file->read_exact(0, read).ok());
  for (std::size_t i = 0; i < read.size(); ++i)
    ASSERT_EQ(read[i], i < 100 ? std::byte{1} : std::byte{0}) << i;
}

TEST_F(FileTest, AReadBeyondTheEndIsDataLoss) {
  for (const Caching caching : {Caching::kDirect, Caching::kBuffered}) {
    const Result<File> file = open("data", Creation::kIfMissing, caching);
    std::vector<std::byte> bytes(5000);
    ASSERT_TRUE(file->write_exact(0, bytes).ok());
    ASSERT_EQ(::ftruncate(file->fd(), 4999), 0);
    const Status status = file->read_exact(0, bytes);
    expect_refused(status, Code::kDataLoss, in("data"));
    EXPECT_TRUE(file->read_exact(0, {bytes.data(), 4999}).ok());
  }
}

TEST_F(FileTest, AReadOnlyFileIsReadAndNotWritten) {
  ASSERT_TRUE(open("data", Creation::kExclusive)->preallocate(8192).ok());
  const Result<File> file = open("data", Creation::kNever, Caching::kDirect, Access::kReadOnly);
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> bytes(100);
  EXPECT_TRUE(file->read_exact(10, bytes).ok());
  EXPECT_EQ(file->write_exact(10, bytes).code(), Code::kIoError);
}

}  // namespace
}  // namespace sluice::io
