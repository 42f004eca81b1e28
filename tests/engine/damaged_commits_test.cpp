#include <fcntl.h>
#include <unistd.h>

#include <span>
#include <utility>

#include "engine/committing_engine.hpp"
#include "store/drives.hpp"
#include "store/existing.hpp"
#include "store/lock.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

using sim::CommitTest;
using sim::dim;
using sim::Fails;
using sim::IsOk;
using sim::kShowsGradient;
using testing::AllOf;
using testing::HasSubstr;

enum class Lives { kOnTheDrive, kInMemory };

/// Committed records and their slots, damaged where they lie on the drive.
class DamagedTest : public CommitTest {
 protected:
  DamagedTest() { options.keep_commits = 2; }

  void open_where(Lives lives) {
    if (lives == Lives::kOnTheDrive)
      open_out_of_core();
    else
      open();
  }
  std::vector<store::ExistingRank> stored() const {
    Result<store::Drives> drives = store::Drives::open(options.directories, io::Access::kReadWrite);
    EXPECT_THAT(drives, IsOk());
    auto found =
        store::find_existing(drives->directories(), {.claim = store::Claim::kLook}, store::Owner::make());
    EXPECT_THAT(found, IsOk());
    return found.ok() ? std::move(found).value() : std::vector<store::ExistingRank>();
  }
  static void write_to(const std::string& path, std::uint64_t offset, std::byte byte) {
    write_to(path, offset, std::span<const std::byte>(&byte, 1));
  }
  static void write_to(const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0) << path;
    EXPECT_EQ(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(::fsync(fd), 0);
    ::close(fd);
  }
  static std::byte byte_at(const std::string& path, std::uint64_t offset) {
    std::byte byte{};
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(::pread(fd, &byte, 1, static_cast<off_t>(offset)), 1);
    ::close(fd);
    return byte;
  }
  /// Flips a bit of a byte of a chunk's record as commit `number` names it.
  void flip(std::uint64_t number, std::uint32_t chunk, std::uint64_t at) {
    for (const store::ExistingRank& rank : stored())
      for (const store::HeldCommit& held : rank.commits) {
        if (held.record.number != number) continue;
        const io::Place place = held.record.chunks[chunk].place;
        const std::string path = rank.drives[place.drive].data->path();
        write_to(path, place.offset + at, byte_at(path, place.offset + at) ^ std::byte{1});
        return;
      }
    FAIL() << "no commit " << number;
  }
  /// Where the newest commit's record lies on a drive.
  std::pair<std::string, std::uint64_t> newest_record(std::uint32_t drive) const {
    const std::vector<store::ExistingRank> ranks = stored();
    const store::HeldCommit& held = ranks.at(0).commits.back();
    const store::Superblock& superblock = *ranks[0].superblock;
    return {ranks[0].drives[drive].data->path(),
            superblock.places_offset + held.places[drive].value() * superblock.place_bytes};
  }
  /// Makes the newest commit's record on one drive a torn one.
  void tear_record(std::uint32_t drive) {
    const auto [path, offset] = newest_record(drive);
    write_to(path, offset + 100, byte_at(path, offset + 100) ^ std::byte{1});
  }
  Status try_to_step() {
    Pass pass = begin();
    give(pass, it, Values(kElements, 0.5f));
    return pass.step().status();
  }
  Status try_to_fetch() {
    Pass pass = look();
    return pass.fetch(std::vector{it}).status();
  }
  Status try_to_read(View view) {
    Values values(kElements);
    return engine->read(it, view, {0, kElements}, values.data(), DType::kF32);
  }
  Status try_to_open() {
    make();
    it = add("it", {dim(kElements)}, {.name = "trained", .optimizer = kShowsGradient});
    frozen = add("frozen", {100}, {.name = "frozen", .policy = Policy::kFrozen}, Constant{3});
    return engine->seal().status();
  }
  static auto told(const std::string& copy) {
    return Fails(Code::kDataLoss, AllOf(HasSubstr("'it'"), HasSubstr("checksum"), HasSubstr(copy)));
  }
  static constexpr const char* kFirstHasIt = "commit 1 has a good copy (recover_commit = 1)";
  static constexpr const char* kNoneHasIt = "no kept commit has a good copy";
};

// The one copy there is: were other bytes written in its place, a torn write would lose the store.
TEST_F(DamagedTest, ARecordOfTheFirstVersionIsRestoredToTheByteAndFollowedByOnesOfThisVersion) {
  open_where(Lives::kOnTheDrive);
  step_by(0.5f);
  commit("first");
  const auto expected = state(it);
  ASSERT_THAT(engine->close(), IsOk());
  store::CommitRecord record = stored().at(0).commits.back().record;
  ASSERT_EQ(record.version, store::kCommitRecordVersion);
  record.version = 1;
  std::vector<std::byte> bytes(store::commit_record_bytes(store::size_of(record)));
  store::encode(record, bytes);
  const auto [path, offset] = newest_record(0);
  write_to(path, offset, bytes);
  open();
  EXPECT_EQ(state(it), expected);
  EXPECT_EQ(report.recovered->user_bytes, CommitTest::bytes("first"));
  std::vector<std::byte> restored;
  for (std::size_t i = 0; i < bytes.size(); ++i) restored.push_back(byte_at(path, offset + i));
  EXPECT_EQ(restored, bytes);
  step_by(0.25f);
  commit("second");
  EXPECT_EQ(stored().at(0).commits.back().record.version, store::kCommitRecordVersion);
}

TEST_F(DamagedTest, WeightsOnTheDriveAreToldByEveryCallWithTheCommitThatHasThem) {
  open_where(Lives::kOnTheDrive);
  step_by(0.5f);
  commit("first");
  const auto first = state(it);
  step_by(0.25f);
  commit("second");
  reopen();
  flip(2, 0, 0);
  EXPECT_THAT(try_to_fetch(), told(kFirstHasIt));
  EXPECT_THAT(try_to_read(View::kWeight), told(kFirstHasIt));
  EXPECT_THAT(try_to_read(View::kMaster), told(kFirstHasIt));
  EXPECT_THAT(try_to_read(View::kMoment1), IsOk());
  EXPECT_THAT(try_to_step(), told(kFirstHasIt));
  ASSERT_THAT(engine->close(), IsOk());
  options.recover_commit = 1;
  open();
  EXPECT_EQ(report.recovered->user_bytes, bytes("first"));
  EXPECT_EQ(state(it), first);
  step_by(1);
}

TEST_F(DamagedTest, MomentsOnTheDriveAreToldByStepAndRead) {
  open_where(Lives::kOnTheDrive);
  step_by(0.5f);
  commit();
  step_by(0.25f);
  commit();
  flip(2, 1, 2 * 2 * kChunk + 5);  // behind weight and residual
  EXPECT_THAT(try_to_fetch(), IsOk());
  EXPECT_THAT(try_to_read(View::kWeight), IsOk());
  EXPECT_THAT(try_to_read(View::kMoment1), told(kFirstHasIt));
  EXPECT_THAT(try_to_step(), told(kFirstHasIt));
}

TEST_F(DamagedTest, StateInMemoryIsToldBySeal) {
  open_where(Lives::kInMemory);
  step_by(0.5f);
  commit("first");
  const auto first = state(it);
  step_by(0.25f);
  commit("second");
  ASSERT_THAT(engine->close(), IsOk());
  flip(2, 2, 7);
  EXPECT_THAT(try_to_open(), told(kFirstHasIt));
  engine.reset();
  EXPECT_THAT(try_to_open(), told(kFirstHasIt));  // nothing was lost by trying
  engine.reset();
  options.recover_commit = 1;
  open();
  EXPECT_EQ(report.recovered->user_bytes, bytes("first"));
  EXPECT_EQ(state(it), first);
}

TEST_F(DamagedTest, StateThatNoOtherCommitHasIsSaidToBeLost) {
  for (const Lives lives : {Lives::kOnTheDrive, Lives::kInMemory}) {
    open_where(lives);
    step_by(0.5f);
    commit();
    commit();  // of the same slots
    ASSERT_THAT(engine->close(), IsOk());
    if (lives == Lives::kOnTheDrive) {
      open();
      flip(2, 0, 0);
      EXPECT_THAT(try_to_fetch(), told(kNoneHasIt));
      EXPECT_THAT(try_to_step(), told(kNoneHasIt));
      EXPECT_THAT(try_to_read(View::kWeight), told(kNoneHasIt));
    } else {
      flip(2, 0, 0);
      EXPECT_THAT(try_to_open(), told(kNoneHasIt));
    }
    options.host_budget_bytes = kUnlimited;
    clear_drive();
  }
}

TEST_F(DamagedTest, ACopyThatIsDamagedTooIsNoGoodOne) {
  options.keep_commits = 3;
  open_where(Lives::kInMemory);
  for (const float gradient : {0.5f, 0.25f, 0.125f}) {
    step_by(gradient);
    commit();
  }
  ASSERT_THAT(engine->close(), IsOk());
  flip(3, 0, 0);
  flip(2, 0, 1);
  EXPECT_THAT(try_to_open(), told(kFirstHasIt));
  engine.reset();
  flip(1, 0, 2);
  EXPECT_THAT(try_to_open(), told(kNoneHasIt));
}

TEST_F(DamagedTest, WithOneCommitThereIsNoOtherToName) {
  options.keep_commits = 1;
  open_where(Lives::kOnTheDrive);
  step_by(0.5f);
  commit();
  reopen();
  flip(1, 0, 0);
  EXPECT_THAT(try_to_fetch(), told(kNoneHasIt));
}

TEST_F(DamagedTest, ARecordThatOneDriveLostIsWrittenThereAgain) {
  const sim::TemporaryDirectory other;
  options.keep_commits = 1;
  options.directories.push_back(other.path());
  open();
  step_by(0.5f);
  commit("kept");
  const auto expected = state(it);
  for (const std::uint32_t drive : {0U, 1U, 0U}) {
    ASSERT_THAT(engine->close(), IsOk());
    tear_record(drive);
    open();
    ASSERT_TRUE(report.recovered.has_value());
    EXPECT_EQ(report.recovered->user_bytes, bytes("kept"));
    EXPECT_EQ(state(it), expected);
  }
  ASSERT_THAT(engine->close(), IsOk());
  tear_record(0);
  tear_record(1);
  EXPECT_THAT(try_to_open(), Fails(Code::kDataLoss, HasSubstr("commit")));
}

}  // namespace
}  // namespace sluice
