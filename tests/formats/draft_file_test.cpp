#include "formats/draft_file.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <tuple>

#include <gmock/gmock.h>

#include "files.hpp"
#include "formats/model_writer.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"

namespace sluice::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DraftFileTest : public testing::Test {
 protected:
  Result<DraftFile> draft() const {
    auto place = locate(path(), io::Access::kReadWrite);
    if (!place.ok()) return place.status();
    return DraftFile::create(std::move(place).value());
  }
  std::string path() const { return directory_.path() + "/f"; }
  std::vector<std::string> names() const { return names_in(directory_.path()); }

  sim::TemporaryDirectory directory_;
};

TEST_F(DraftFileTest, AppearsWholeOrNotAtAll) {
  auto file = draft();
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE(file->write(bytes_of("abc")).ok());
  EXPECT_THAT(names(), ElementsAre("f.sluice-draft"));
  ASSERT_TRUE(file->publish().ok());
  EXPECT_EQ(get_file(path()), "abc");
  EXPECT_THAT(names(), ElementsAre("f"));
}

TEST_F(DraftFileTest, OneThatIsAbandonedLeavesNothing) {
  {
    auto abandoned = draft();
    ASSERT_TRUE(abandoned.ok()) << abandoned.status().to_string();
    ASSERT_TRUE(abandoned->write(bytes_of("abc")).ok());
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(DraftFileTest, ATakenNameIsRefusedAtBothEnds) {
  std::optional<DraftFile> late(draft().value());
  put_file(path(), "old");
  EXPECT_EQ(draft().status().code(), Code::kAlreadyExists);
  EXPECT_EQ(late->publish().code(), Code::kAlreadyExists);
  late.reset();
  EXPECT_EQ(get_file(path()), "old");
  EXPECT_THAT(names(), ElementsAre("f"));
}

TEST_F(DraftFileTest, OneThatIsBeingWrittenIsRefused) {
  const auto first = draft();
  const auto second = draft();
  EXPECT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("/f: another writer is at work"));
  EXPECT_THAT(names(), ElementsAre("f.sluice-draft"));
}

TEST_F(DraftFileTest, OneLeftByAKilledProcessIsWrittenOver) {
  {
    sim::Child killed([&] {
      auto file = draft();
      return std::string(file.ok() && file->write(std::vector<std::byte>(3 << 20)).ok() ? "written"
                                                                                        : "failed");
    });
    ASSERT_EQ(killed.report(), "written");
  }
  auto file = draft();
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE(file->write(bytes_of("abc")).ok());
  ASSERT_TRUE(file->publish().ok());
  EXPECT_EQ(get_file(path()), "abc");
}

TEST_F(DraftFileTest, AForkedChildTakesNothingAway) {
  std::optional<DraftFile> file(draft().value());
  EXPECT_EQ(sim::in_child([&] {
              file.reset();
              return std::string("ended");
            }),
            "ended");
  EXPECT_THAT(names(), ElementsAre("f.sluice-draft"));
}

TEST_F(DraftFileTest, ALinkInItsPlaceIsNotFollowed) {
  put_file(directory_.path() + "/other", "theirs");
  std::filesystem::create_symlink("other", path() + ".sluice-draft");
  EXPECT_EQ(draft().status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(get_file(directory_.path() + "/other"), "theirs");
}

TEST_F(DraftFileTest, AFullDriveIsToldOfBeforeAnythingIsWritten) {
  const std::string said = sim::in_child([&]() -> std::string {
    if (!sim::mount_tmpfs(directory_.path(), 1 << 20)) return "skip";
    const Status status = SafetensorsWriter::create(path(), {{"a", DType::kU8, {2 << 20}}}, {}).status();
    return status.to_string() + " left " + std::to_string(names().size());
  });
  if (said == "skip") GTEST_SKIP() << "no mounts here";
  EXPECT_THAT(said, HasSubstr("NoSpace"));
  EXPECT_THAT(said, HasSubstr("needs 2101248 bytes more"));
  EXPECT_THAT(said, HasSubstr("left 0"));
}

/// Writes a file in a child that the kernel refuses `refusal`. Returns: what went wrong, and how much is
/// left.
std::string write_refused(const std::string& path, const sim::Refusal& refusal) {
  return sim::in_child([&]() -> std::string {
    const std::string directory = std::filesystem::path(path).parent_path();
    std::string said;
    {
      auto writer = SafetensorsWriter::create(path, {{"a", DType::kU8, {2 << 20}}}, {});
      if (!writer.ok()) return writer.status().to_string();
      if (!sim::refuse({refusal})) return "skip";
      const std::vector<std::byte> bytes(2 << 20);
      Status status = writer->append("a", bytes);
      const Status finished = writer->finish();
      if (!status.ok() && finished.to_string() != status.to_string())
        return "the first failure was forgotten";
      said = finished.to_string();
    }
    return said + " left " + std::to_string(names_in(directory).size());
  });
}

TEST_F(DraftFileTest, WhateverFailsLeavesNothing) {
  for (const auto& [call, error, code] :
       {std::tuple(SYS_pwrite64, ENOSPC, "NoSpace"), std::tuple(SYS_pwrite64, EIO, "IoError"),
        std::tuple(SYS_fdatasync, EIO, "IoError"), std::tuple(SYS_renameat2, EACCES, "IoError"),
        std::tuple(SYS_fsync, EIO, "IoError")}) {
    const std::string said = write_refused(path(), {.call = call, .error = error});
    if (said == "skip") GTEST_SKIP() << "no seccomp here";
    EXPECT_THAT(said, HasSubstr(code)) << call;
    EXPECT_THAT(said, HasSubstr("/f")) << call;
    EXPECT_THAT(said, HasSubstr("left 0")) << call;
  }
}

TEST_F(DraftFileTest, FileSystemsWithoutExclusiveRenamesAreServed) {
  const std::string said = write_refused(path(), {.call = SYS_renameat2, .error = EINVAL});
  if (said == "skip") GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(said, "Ok left 1");
}

TEST_F(DraftFileTest, FileSystemsWithoutLocksAreServed) {
  EXPECT_EQ(sim::in_child([&]() -> std::string {
              if (!sim::refuse({{.call = SYS_flock, .error = ENOLCK}})) return "Ok";
              auto file = draft();
              return file.ok() ? file->publish().to_string() : file.status().to_string();
            }),
            "Ok");
}

}  // namespace
}  // namespace sluice::formats
