#include <sys/syscall.h>

#include <functional>

#include "kernels/tile_hash.hpp"
#include "recovery_fixture.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"

namespace sluice::store {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DamageTest : public RecoveryTest {
 protected:
  Superblock superblock() const { return *found({.claim = Claim::kLook}).superblock; }
  std::uint64_t place_offset(std::uint32_t place) const {
    return superblock().places_offset + place * superblock().place_bytes;
  }
  /// The refusal of every way to look, which is the same.
  Status refusal() const {
    const Status looking = find({.claim = Claim::kLook}).status();
    const Status locking = find().status();
    EXPECT_EQ(looking.to_string(), locking.to_string());
    return locking;
  }
  /// What `body` tells where the drives' reads of this place, of none other, fail.
  std::string where_unreadable(const std::vector<std::uint32_t>& drives, std::uint32_t place,
                               const std::function<std::string()>& body) const {
    return sim::in_child([&] {
      // A descriptor is the lowest that is free: the files that are opened again get the same ones.
      std::vector<sim::Refusal> refusals;
      {
        const ExistingRank rank = found();
        const std::uint64_t offset = place_offset(place);
        for (const std::uint32_t drive : drives) {
          refusals.push_back({.call = SYS_pread64,
                              .error = EIO,
                              .argument = 3,
                              .equals = static_cast<std::uint32_t>(offset),
                              .descriptor = rank.drives[drive].data->fd()});
        }
      }
      return sim::refuse(refusals) ? body() : std::string("skip");
    });
  }
  static std::string told(const std::vector<PlaceOnDrive>& places) {
    std::string text;
    for (const auto& [drive, place] : places) {
      text += std::to_string(drive) + ":" + std::to_string(place) + " ";
    }
    return text;
  }
  /// Bytes of drive's container are these from now on, under a good checksum.
  void put_superblock(std::uint32_t drive, const Superblock& superblock) const {
    const SuperblockBytes bytes = encode(superblock);
    overwrite(data_path(drive), 0, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
};

TEST_F(DamageTest, RecordTornAtAnySectorIsNotHeldAndTheOneBeforeIs) {
  const auto records = leave_run({1, 2});
  std::vector<std::byte> bytes(superblock().place_bytes);
  const std::uint64_t record_bytes = encode(records[1], bytes);
  ASSERT_GT(record_bytes, 4 * 512u);
  const std::uint64_t offset = place_offset(1);
  for (const char damage : {'\0', 'x'}) {
    for (std::uint64_t sector = 0; sector < bytes.size() / 512; ++sector) {
      SCOPED_TRACE(testing::Message() << "sector " << sector);
      const std::string whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      overwrite(data_path(0), offset, whole);
      overwrite(data_path(0), offset + sector * 512, std::string(512, damage));
      const auto held = numbers_of(found().commits);
      if (sector * 512 < record_bytes) {
        EXPECT_THAT(held, ElementsAre(1u));
      } else {
        EXPECT_THAT(held, ElementsAre(1u, 2u)) << "nothing of the record lies there";
      }
    }
  }
}

TEST_F(DamageTest, CommittedStoreWithoutAWholeRecordIsLostNotUnfinished) {
  use_drives(2);
  leave_run({1});
  for (std::uint32_t drive = 0; drive < 2; ++drive) flip(data_path(drive), place_offset(0) + 1000);
  const Status status = recover().status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 holds no whole commit"));
}

TEST_F(DamageTest, FlagOnOneDriveIsEnough) {
  use_drives(2);
  auto store = created(options_);
  set_committed(*store, 1);
  store->keep();
  ASSERT_TRUE(store->close().ok());
  EXPECT_TRUE(found().superblock->committed);
  EXPECT_EQ(recover().status().code(), Code::kDataLoss);
}

TEST_F(DamageTest, MakingThatWasCutAtAnyStepHoldsNothingAndIsRemoved) {
  use_drives(2);
  const auto make = [&] {
    auto store = created(options_);
    store->keep();
    ASSERT_TRUE(store->close().ok());
  };
  const auto blank = [&](std::uint32_t drive) { overwrite(data_path(drive), 0, std::string(512, '\0')); };
  const std::vector<std::function<void()>> steps = {
      [] {},                                        // all made, nothing committed
      [&] { blank(1); },                            // superblock of the second drive
      [&] { blank(0), blank(1); },                  // of both
      [&] { blank(0), fs::remove(data_path(1)); },  // no container on the second
      [&] { blank(1), fs::resize_file(data_path(0), 0); },
      [&] { fs::remove(data_path(0)), fs::remove(data_path(1)); },
      [&] { fs::remove(data_path(0)), fs::remove_all(paths_[1] + "/store-0000000000000abc"); },
      [&] { fs::remove(data_path(0)), fs::remove(rank_path("a") + "/lock"); },
      [&] { fs::remove_all(rank_path("a")), fs::remove_all(rank_path("b")); }};
  for (std::size_t step = 0; step < steps.size(); ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    make();
    steps[step]();
    {
      const auto ranks = find();
      ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
      const auto choice = choose(*ranks);
      ASSERT_TRUE(choice.ok()) << choice.status().to_string();
      EXPECT_FALSE(choice->has_value());
      for (const ExistingRank& rank : *ranks) EXPECT_THAT(rank.commits, IsEmpty());
    }
    auto again = replace(options_);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    ASSERT_TRUE((*again)->close().ok());
    EXPECT_THAT(names(), IsEmpty());
  }
}

TEST_F(DamageTest, DriveThatWasNeverMadeWholeIsNamed) {
  use_drives(2);
  leave_run({1});
  overwrite(data_path(1), 0, std::string(512, '\0'));
  const ExistingRank rank = found();
  EXPECT_FALSE(rank.whole);
  EXPECT_THAT(rank.missing,
              AllOf(HasSubstr("drive 1 of 2"), HasSubstr(rank_path("b") + " was never made whole")));
}

TEST_F(DamageTest, ContainerThatEndsBeforeItsSlotsIsTruncated) {
  leave_run({1});
  const std::uint64_t container_bytes = superblock().container_bytes;
  fs::resize_file(data_path(0), container_bytes + 8192);
  EXPECT_TRUE(recover().ok()) << "a longer one may have grown";
  for (const std::uint64_t bytes : {container_bytes - 1, container_bytes / 2, std::uint64_t{512}}) {
    fs::resize_file(data_path(0), bytes);
    const Status status = refusal();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(data_path(0) + ": truncated"), HasSubstr(std::to_string(bytes)),
                      HasSubstr(std::to_string(container_bytes))));
  }
  fs::resize_file(data_path(0), 511);
  EXPECT_THAT(refusal().message(), AllOf(HasSubstr(data_path(0)), HasSubstr("truncated")));
}

TEST_F(DamageTest, DamagedCatalogIsRefusedOnAnyDrive) {
  use_drives(3);
  leave_run({1});
  const Superblock made = superblock();
  for (std::uint32_t drive = 0; drive < 3; ++drive) {
    for (const std::uint64_t byte : {std::uint64_t{0}, made.catalog_bytes / 2, made.catalog_bytes - 1}) {
      flip(data_path(drive), made.catalog_offset + byte);
      const Status status = refusal();
      EXPECT_EQ(status.code(), Code::kDataLoss);
      EXPECT_THAT(status.message(), HasSubstr(data_path(drive) + ": the catalog is damaged"));
      flip(data_path(drive), made.catalog_offset + byte);
    }
  }
  EXPECT_TRUE(recover().ok());
}

TEST_F(DamageTest, DamagedSuperblockIsRefusedWithItsFile) {
  use_drives(2);
  leave_run({1});
  flip(data_path(1), 100);
  EXPECT_EQ(refusal().code(), Code::kDataLoss);
  EXPECT_THAT(refusal().message(), AllOf(HasSubstr(data_path(1)), HasSubstr("damaged")));
}

TEST_F(DamageTest, DrivesOfOneVolumeMayNotContradictEachOther) {
  use_drives(2);
  leave_run({1});
  Superblock second = *found({.claim = Claim::kLook}).drives[1].superblock;
  second.generation = 7;
  put_superblock(1, second);
  EXPECT_EQ(refusal().code(), Code::kDataLoss);
  EXPECT_THAT(refusal().message(), AllOf(HasSubstr(data_path(1)), HasSubstr(data_path(0))));
}

TEST_F(DamageTest, CatalogThatIsNotTheSuperblocksIsRefused) {
  leave_run({1});
  Superblock other = superblock();
  other.chunk_elements *= 2;
  put_superblock(0, other);
  EXPECT_EQ(refusal().code(), Code::kDataLoss);
  EXPECT_THAT(refusal().message(), HasSubstr(data_path(0)));
}

TEST_F(DamageTest, DriveThatIsThereTwiceIsNamedWithBothPlaces) {
  use_drives(2);
  leave_run({1});
  use_drives(3);
  fs::copy(path("b"), path("c"), fs::copy_options::recursive);
  const Status status = refusal();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(data_path(1)), HasSubstr(data_path(2)), HasSubstr("a second time")));
}

TEST_F(DamageTest, DriveOfAnotherVolumeIsNamed) {
  use_drives(2);
  leave_run({1});
  use_drives(4);
  const auto all = paths_;
  paths_ = {all[2], all[3]};
  leave_run({1});  // of the same name
  paths_ = {all[0], all[3]};
  const Status status = refusal();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("drive 1 of volume"), HasSubstr(data_path(1)), HasSubstr(data_path(0))));
}

TEST_F(DamageTest, DrivesOfTwoStoresAreToldApart) {
  use_drives(4);
  const auto all = paths_;
  paths_ = {all[0], all[1]};
  leave_run({1});
  paths_ = {all[2], all[3]};
  options_.store_id = 0xdef;
  leave_run({5});
  paths_ = {all[0], all[3]};
  const auto ranks = find();
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  ASSERT_EQ(ranks->size(), 2u);
  EXPECT_THAT(ranks->at(0).missing, HasSubstr("drive 1 of 2"));
  EXPECT_THAT(ranks->at(1).missing, HasSubstr("drive 0 of 2"));
  EXPECT_EQ(choose(*ranks).status().code(), Code::kDataLoss);
}

TEST_F(DamageTest, ContainerInAnothersDirectoryIsRefused) {
  leave_run({1});
  fs::rename(rank_path("a"), path("a") + "/store-0000000000000abc/rank-00001");
  const Status status = find().status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("rank-00001/data"), HasSubstr("rank 0 of store 0000000000000abc")));
}

TEST_F(DamageTest, PlaceThatCannotBeReadIsNoLossWhereAnotherDriveHoldsItsRecord) {
  use_drives(3);
  leave_run({1, 2, 3});
  for (std::uint32_t place = 0; place < 3; ++place) {
    for (std::uint32_t drive = 0; drive < 3; ++drive) {
      SCOPED_TRACE(testing::Message() << "drive " << drive << ", place " << place);
      const std::string report = where_unreadable({drive}, place, [&] {
        const auto store = recover();
        if (!store.ok()) return store.status().to_string();
        return testing::PrintToString(numbers_of((*store)->kept())) + " rewrite " +
               told((*store)->to_rewrite()) + "erase " + told((*store)->to_erase());
      });
      if (report == "skip") GTEST_SKIP() << "cannot refuse system calls here";
      const std::string unreadable = told({{drive, place}});
      std::string erased;
      for (std::uint32_t other = 0; other < 3; ++other) {
        if (place != 0 || other != drive) erased += told({{other, 0}});
      }
      EXPECT_EQ(report, "{ 2, 3 } rewrite " + (place == 2 ? unreadable : "") + "erase " +
                            (place == 2 ? "" : unreadable) + erased);
    }
  }
}

TEST_F(DamageTest, PlaceThatCannotBeReadAndNoDriveHoldsARecordInIsRefused) {
  use_drives(2);
  auto store = created(options_);
  commit(*store, {1, 2});
  store->keep();
  ASSERT_TRUE(store->close().ok());
  for (const auto& [drives, place] :
       std::vector<std::pair<std::vector<std::uint32_t>, std::uint32_t>>{{{0, 1}, 1}, {{1}, 2}}) {
    const std::string report = where_unreadable(drives, place, [&] {
      const Status status = find().status();
      return std::string(code_name(status.code())) + " " + status.message();
    });
    if (report == "skip") GTEST_SKIP() << "cannot refuse system calls here";
    EXPECT_THAT(report, AllOf(HasSubstr("IoError"), HasSubstr(data_path(drives[0])),
                              HasSubstr("commit record place " + std::to_string(place))));
  }
}

TEST_F(DamageTest, RecordsOfOthersAreNotHeld) {
  auto store = created(options_);
  const CommitRecord good = commit(*store, {1})[0];
  const auto others = [&]() -> std::vector<CommitRecord> {
    std::vector<CommitRecord> records(8, good);
    records[0].volume_id[3] ^= std::byte{1};
    records[1].store_id += 1;
    records[2].world += 1;
    records[3].chunks.pop_back();
    records[4].step_counts.push_back(1);
    records[5].groups.pop_back();
    records[6].chunks[0].place.offset += 1;
    records[7].chunks[3].checksums[1] = 1;  // a frozen record has one plane
    return records;
  }();
  for (std::size_t i = 0; i < others.size(); ++i) {
    CommitRecord record = others[i];
    record.number = 9;
    write_record(*store, record, 1);
    EXPECT_THAT(numbers_of(found({.claim = Claim::kLook}).commits), ElementsAre(1u)) << "record " << i;
  }
}

TEST_F(DamageTest, OneCommitInTwoPlacesOfADriveIsRefused) {
  auto store = created(options_);
  const CommitRecord record = commit(*store, {1})[0];
  write_record(*store, record, 2);
  const Status status = find({.claim = Claim::kLook}).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(data_path(0)), HasSubstr("places 0 and 2 both hold commit 1")));
}

TEST_F(DamageTest, RecordOfANewerFormatIsRefusedWithItsPlace) {
  leave_run({1, 2});
  const std::uint64_t offset = place_offset(1);
  std::vector<std::byte> bytes(superblock().place_bytes);
  {
    const ExistingRank rank = found();
    ASSERT_TRUE(rank.drives[0].data->read_exact(offset, bytes).ok());
  }
  // The version behind the magic, sealed again.
  bytes[8] = std::byte{kCommitRecordVersion + 1};
  std::uint64_t total_bytes = 0;
  for (std::size_t i = 8; i-- > 0;)
    total_bytes = total_bytes << 8 | std::to_integer<std::uint64_t>(bytes[16 + i]);
  ASSERT_LE(total_bytes, bytes.size());
  const std::uint64_t checksum = kernels::hash_bytes(bytes.data(), total_bytes - 8);
  for (std::size_t i = 0; i < 8; ++i)
    bytes[total_bytes - 8 + i] = static_cast<std::byte>(checksum >> (8 * i));
  overwrite(data_path(0), offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const Status status = refusal();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(data_path(0)), HasSubstr("place 1"),
                                      HasSubstr("version " + std::to_string(kCommitRecordVersion + 1))));
}

}  // namespace
}  // namespace sluice::store
