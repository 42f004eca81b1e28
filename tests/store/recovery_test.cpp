#include <unistd.h>

#include <set>
#include <thread>

#include "recovery_fixture.hpp"
#include "store/names.hpp"
#include "support/child.hpp"

namespace sluice::store {
namespace {

using sim::Child;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RecoveryOnDrives : public RecoveryTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  RecoveryOnDrives() { use_drives(GetParam()); }
  std::uint32_t drives() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(OneAndSeveral, RecoveryOnDrives, testing::Values(1u, 3u));

TEST_P(RecoveryOnDrives, CommitsComeBackAsTheyWereWritten) {
  const auto written = leave_run({1, 2});
  const auto store = recovered();
  ASSERT_THAT(numbers_of(store->kept()), ElementsAre(1u, 2u));
  for (std::size_t i = 0; i < 2; ++i) {
    const CommitRecord& record = store->kept()[i].record;
    EXPECT_EQ(record.steps, written[i].steps);
    EXPECT_EQ(record.user_bytes, written[i].user_bytes);
    for (std::size_t chunk = 0; chunk < 4; ++chunk) {
      EXPECT_EQ(record.chunks[chunk].place.drive, written[i].chunks[chunk].place.drive);
      EXPECT_EQ(record.chunks[chunk].place.offset, written[i].chunks[chunk].place.offset);
    }
    EXPECT_THAT(store->kept()[i].places, testing::Each(static_cast<std::uint32_t>(i)));
  }
  EXPECT_TRUE(store->superblock().committed);
  EXPECT_THAT(store->to_erase(), IsEmpty());
  EXPECT_THAT(store->to_rewrite(), IsEmpty());
  EXPECT_EQ(store->reserved_bytes(), needed(options_));
}

TEST_P(RecoveryOnDrives, SlotsOfKeptCommitsAreNotGivenOut) {
  const auto written = leave_run({1, 2});
  const auto store = recovered();
  std::set<std::pair<std::uint32_t, std::uint64_t>> named;
  for (const CommitRecord& record : written) {
    for (const CommittedChunk& chunk : record.chunks) named.emplace(chunk.place.drive, chunk.place.offset);
  }
  int given = 0;
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
    while (const auto place = store->acquire_slot(chunk)) {
      EXPECT_FALSE(named.contains({place->drive, place->offset}));
      ++given;
    }
  }
  EXPECT_EQ(given, 3 * 4 - 2 * 3);
  // The older commit alone, then commit and current state.
  const io::Place older = written[0].chunks[0].place, current = written[1].chunks[0].place;
  EXPECT_FALSE(store->slot_shared(0, older));
  EXPECT_TRUE(store->slot_shared(0, current));
  store->release_slot(0, older);
  EXPECT_EQ(store->acquire_slot(0)->offset, older.offset);
}

TEST_P(RecoveryOnDrives, OrderOfTheDirectoriesDoesNotMatter) {
  leave_run({1, 2});
  std::sort(paths_.begin(), paths_.end());
  const auto sorted = paths_;
  do {
    const auto store = recovered();
    for (std::uint32_t drive = 0; drive < drives(); ++drive) {
      EXPECT_THAT(store->data(drive).path(), testing::StartsWith(sorted[drive] + "/"));
    }
  } while (std::next_permutation(paths_.begin(), paths_.end()));
}

TEST_P(RecoveryOnDrives, StoreGoesOnFromRunToRun) {
  leave_run({1});
  for (std::uint64_t number = 2; number < 9; ++number) {
    const auto store = recovered();
    ASSERT_EQ(numbers_of(store->kept()).back(), number - 1);
    std::vector<io::Place> places;
    for (std::uint32_t chunk = 0; chunk < 3; ++chunk) places.push_back(*store->acquire_slot(chunk));
    places.push_back(store->kept().back().record.chunks[3].place);
    write_record(*store, record_of(*store, number, places), static_cast<std::uint32_t>((number - 1) % 3));
    ASSERT_TRUE(store->close().ok());
  }
  EXPECT_THAT(numbers_of(found().commits), ElementsAre(6u, 7u, 8u));
}

TEST_F(RecoveryTest, EachDriveThatIsMissingIsNamed) {
  use_drives(3);
  leave_run({1, 2});
  const auto all = paths_;
  for (std::uint32_t drive = 0; drive < 3; ++drive) {
    paths_ = all;
    paths_.erase(paths_.begin() + drive);
    std::vector<ExistingRank> ranks;
    ranks.push_back(found());
    EXPECT_FALSE(ranks[0].whole);
    EXPECT_THAT(ranks[0].missing, HasSubstr("drive " + std::to_string(drive) + " of 3 (volume "));
    EXPECT_THAT(numbers_of(ranks[0].commits), ElementsAre(1u, 2u)) << "the others still hold the records";
    const Status status = choose(ranks).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 lacks drive " + std::to_string(drive) + " of 3"));
    EXPECT_THAT(status.message(), HasSubstr("store 0000000000000abc"));
  }
}

TEST_F(RecoveryTest, ManyMissingDrivesAreCounted) {
  use_drives(12);
  leave_run({1});
  paths_ = {paths_[11], paths_[0]};
  EXPECT_THAT(found().missing, HasSubstr("drive 1, 2, 3, 4, 5, 6, 7, 8 and 2 more of 12"));
}

TEST_F(RecoveryTest, NewestCommitOnOneDriveIsHeldAndMissingCopiesAreToBeWritten) {
  use_drives(3);
  auto store = created(options_);
  const auto records = commit(*store, {1, 2});
  write_record(*store,
               record_of(*store, 3,
                         {records[1].chunks[0].place, records[1].chunks[1].place, records[1].chunks[2].place,
                          records[1].chunks[3].place}),
               2, {1});
  store->keep();
  ASSERT_TRUE(store->close().ok());

  store = recovered();
  EXPECT_THAT(numbers_of(store->kept()), ElementsAre(2u, 3u));
  EXPECT_THAT(store->to_rewrite(), ElementsAre(PlaceOnDrive{0, 2}, PlaceOnDrive{2, 2}));
  EXPECT_THAT(store->to_erase(), ElementsAre(PlaceOnDrive{0, 0}, PlaceOnDrive{1, 0}, PlaceOnDrive{2, 0}));
}

TEST_F(RecoveryTest, CopyIsNotToBeWrittenOverAnotherCommitThatIsKept) {
  use_drives(2);
  auto store = created(options_);
  const auto records = commit(*store, {1});
  CommitRecord second = records[0];
  second.number = 2;
  write_record(*store, second, 0, {1});  // over commit 1 there
  store->keep();
  ASSERT_TRUE(store->close().ok());

  store = recovered();
  EXPECT_THAT(numbers_of(store->kept()), ElementsAre(1u, 2u));
  EXPECT_THAT(store->to_rewrite(), ElementsAre(PlaceOnDrive{0, 1}));
}

TEST_F(RecoveryTest, RecordsNewerThanTheChosenOneAreToBeErased) {
  use_drives(2);
  leave_run({4, 7});
  const auto store = recovered(4);
  EXPECT_THAT(numbers_of(store->kept()), ElementsAre(4u));
  EXPECT_THAT(store->to_erase(), ElementsAre(PlaceOnDrive{0, 1}, PlaceOnDrive{1, 1}));
}

TEST_F(RecoveryTest, RecordsBehindTheKeptOnesAreToBeErasedFirst) {
  leave_run({1, 2, 3});
  EXPECT_THAT(numbers_of(found().commits), ElementsAre(1u, 2u, 3u));
  EXPECT_THAT(recovered()->to_erase(), ElementsAre(PlaceOnDrive{0, 0}));
  EXPECT_THAT(recovered(2)->to_erase(), ElementsAre(PlaceOnDrive{0, 0}, PlaceOnDrive{0, 2}));
}

TEST_F(RecoveryTest, WhatRecoveryNeededIsForgottenAndTheSlotsStayTaken) {
  use_drives(2);
  leave_run({1, 2, 3});
  const auto store = recovered();
  const io::Place older = store->kept()[0].record.chunks[0].place;
  const io::Place current = store->kept()[1].record.chunks[0].place;
  ASSERT_FALSE(store->to_erase().empty());
  store->forget_recovery();
  EXPECT_EQ(store->kept().capacity(), 0u);
  EXPECT_THAT(store->to_erase(), IsEmpty());
  EXPECT_THAT(store->to_rewrite(), IsEmpty());
  EXPECT_TRUE(store->slot_shared(0, current));
  while (const auto place = store->acquire_slot(0)) {
    EXPECT_NE(place->offset, older.offset);
    EXPECT_NE(place->offset, current.offset);
  }
}

TEST_F(RecoveryTest, CommitThatIsNotThereIsRefusedWithThoseThatAre) {
  leave_run({4, 7});
  const Status status = recover(5).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("commit 5 is not there"));
  EXPECT_THAT(status.message(), HasSubstr("holds 4, 7"));
}

TEST_F(RecoveryTest, NewStoreHasErasedPlacesAndHoldsNothing) {
  use_drives(2);
  auto store = created(options_);
  std::vector<std::byte> bytes(store->superblock().place_bytes);
  for (std::uint32_t drive = 0; drive < 2; ++drive) {
    for (std::uint32_t place = 0; place < store->superblock().place_count; ++place) {
      ASSERT_TRUE(store->data(drive).read_exact(store->place_offset(place), bytes).ok());
      EXPECT_EQ(decode_commit(bytes).status().code(), Code::kNotFound);
    }
  }
  store->keep();
  ASSERT_TRUE(store->close().ok());
  const auto ranks = find();
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_TRUE(ranks->at(0).whole);
  EXPECT_EQ(choose(*ranks)->has_value(), false);
}

TEST_F(RecoveryTest, RanksOfAnotherWorldShareTheOldOnesAmongThem) {
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    options_.rank = rank;
    options_.world = 5;
    auto store = created(options_);
    store->keep();
    ASSERT_TRUE(store->close().ok());
  }
  std::vector<std::uint32_t> seen;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto ranks = find({.rank = rank, .world = 2});
    ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
    for (const ExistingRank& one : *ranks) seen.push_back(one.rank);
  }
  EXPECT_THAT(seen, ElementsAre(0u, 2u, 4u, 1u, 3u));
}

TEST_F(RecoveryTest, RanksOfOneProcessLookAtTheSameDirectoriesAtOnce) {
  use_drives(2);
  options_.world = 4;
  for (options_.rank = 0; options_.rank < 4; ++options_.rank) {
    auto store = created(options_);
    commit(*store, {1});
    store->keep();
    ASSERT_TRUE(store->close().ok());
  }
  std::vector<Status> statuses(4);
  std::vector<std::vector<ExistingRank>> found_by(4);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      auto ranks = find({.rank = rank, .world = 4});
      statuses[rank] = ranks.status();
      if (ranks.ok()) found_by[rank] = std::move(*ranks);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<RankSummary> summaries;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(statuses[rank].ok()) << statuses[rank].to_string();
    ASSERT_EQ(found_by[rank].size(), 1u);
    summaries.push_back(summarize(found_by[rank][0]));
  }
  EXPECT_EQ(choose_store(summaries, std::nullopt)->value().commit, 1u);
}

TEST_F(RecoveryTest, EnginesThatNameTheDrivesDifferentlyDoNotWaitForEachOther) {
  use_drives(3);
  const auto work = [](std::vector<std::string> paths) {
    const auto drives = Drives::open(paths, io::Access::kReadWrite);
    ASSERT_TRUE(drives.ok());
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(drives->guard().ok());
  };
  std::thread other([&] { work({paths_[2], paths_[1], paths_[0]}); });
  work(paths_);
  other.join();
}

TEST_F(RecoveryTest, KeptStoreIsOpenedAgainByTheSameProcess) {
  leave_run({1});
  auto store = recovered();
  EXPECT_TRUE(fs::exists(rank_path("a") + "/owner"));
  EXPECT_EQ(find().status().code(), Code::kFailedPrecondition) << "it is in use";
  EXPECT_THAT(find().status().message(), HasSubstr("another engine of this process"));
  ASSERT_TRUE(store->close().ok());
  EXPECT_FALSE(fs::exists(rank_path("a") + "/owner"));
  EXPECT_TRUE(recover().ok());
}

TEST_F(RecoveryTest, WhatWasFoundIsLockedUntilItIsDropped) {
  leave_run({1});
  {
    const ExistingRank rank = found();
    Child other([&] { return find().status().to_string(); });
    EXPECT_THAT(other.report(), HasSubstr("in use by process " + std::to_string(::getpid())));
    EXPECT_EQ(find().status().code(), Code::kFailedPrecondition);
  }
  Child other([&] { return find().status().to_string(); });
  EXPECT_EQ(other.report(), "Ok");
}

TEST_F(RecoveryTest, ContainerWhoseLockIsGoneIsLockedAgain) {
  use_drives(2);
  leave_run({1});
  fs::remove(rank_path("b") + "/lock");
  {
    const ExistingRank rank = found();
    EXPECT_TRUE(rank.drives[1].lock.has_value());
    paths_ = {path("b")};
    Child other([&] { return find().status().to_string(); });
    EXPECT_THAT(other.report(), HasSubstr("in use by process " + std::to_string(::getpid())));
    use_drives(2);
  }
  EXPECT_TRUE(recover().ok());
}

TEST_F(RecoveryTest, ContainerWhoseLockIsGoneIsRefusedWhileItsOwnerLives) {
  leave_run({1});
  Child live([&] {
    auto store = recover();
    const Status status = store.status();
    if (store.ok()) (*store).release();
    return status.to_string();
  });
  ASSERT_EQ(live.report(), "Ok");
  fs::remove(rank_path("a") + "/lock");
  const Status status = recover().status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("in use by process " + std::to_string(live.pid())));
  live.kill();
  EXPECT_TRUE(recover().ok());
}

TEST_F(RecoveryTest, StoreIsNotOpenedWithoutItsLocks) {
  leave_run({1});
  const auto drives = Drives::open(paths_, io::Access::kReadWrite);
  ASSERT_TRUE(drives.ok());
  const std::vector<std::uint64_t> kept = {1};
  const Status status = Store::open(*drives, options_, found({.claim = Claim::kLook}), kept).status();
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(rank_path("a") + ": opened without its lock"));
}

TEST_F(RecoveryTest, LiveStoreOfAnotherProcessIsRefusedByItsPid) {
  leave_run({1});
  Child live([&] {
    auto store = recover();
    const Status status = store.status();
    if (store.ok()) (*store).release();
    return status.to_string();
  });
  ASSERT_EQ(live.report(), "Ok");
  const Status status = recover().status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("in use by process " + std::to_string(live.pid())));
  live.kill();
  EXPECT_TRUE(recover().ok());
}

TEST_F(RecoveryTest, LookingLocksNothingAndDropsNoLock) {
  leave_run({1});
  const auto store = recovered();
  const ExistingRank seen = found({.claim = Claim::kLook});
  EXPECT_THAT(numbers_of(seen.commits), ElementsAre(1u));
  EXPECT_FALSE(seen.drives[0].lock);
  Child other([&] { return recover().status().to_string(); });
  EXPECT_THAT(other.report(), HasSubstr("in use by process " + std::to_string(::getpid())));
}

TEST_F(RecoveryTest, LookingWorksOnAReadOnlyFileSystem) {
  Child child([&] {
    if (!sim::mount_tmpfs(path("a"), 16 << 20)) return std::string("skip");
    leave_run({1, 2});
    std::ofstream(path("a") + "/store-0000000000000abc/rank-00000/notes.txt") << "somebody's";
    if (!sim::remount_read_only(path("a"))) return std::string("skip");
    const auto ranks = find({.claim = Claim::kLook});
    if (!ranks.ok()) return ranks.status().to_string();
    return "newest " + std::to_string(ranks->at(0).commits.back().record.number);
  });
  if (child.report() == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_EQ(child.report(), "newest 2");
}

TEST_F(RecoveryTest, RemovedStoreLeavesNothing) {
  use_drives(2);
  leave_run({1});
  {
    const auto drives = Drives::open(paths_, io::Access::kReadWrite);
    ASSERT_TRUE(drives.ok());
    const auto guards = drives->guard();
    auto ranks = find_existing(drives->directories(), {}, Owner::make());
    ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
    EXPECT_TRUE(remove_existing(std::move(ranks->at(0))).ok());
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(RecoveryTest, StoreThatIsNotKeptLeavesNothing) {
  auto store = created(options_);
  ASSERT_TRUE(store->close().ok());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(RecoveryTest, WhatADeadRunLeftBesideTheContainerIsNoObstacle) {
  options_.spilled_gradient_slots = 2;
  leave_run({1});
  std::ofstream(rank_path("a") + "/gradients") << "killed between making and unlinking";
  std::ofstream(rank_path("a") + "/owner.draft") << std::string(200, 'x');
  const auto store = recovered();
  EXPECT_EQ(*store->gradients(0).size(), 2u * 65536);
  EXPECT_FALSE(fs::exists(rank_path("a") + "/gradients"));
  EXPECT_FALSE(fs::exists(rank_path("a") + "/owner.draft"));
}

TEST_F(RecoveryTest, FilesOfOthersAreARefusalToLockAlone) {
  leave_run({1});
  std::ofstream(rank_path("a") + "/notes.txt") << "keep me";
  EXPECT_EQ(find().status().code(), Code::kAlreadyExists);
  EXPECT_THAT(find().status().message(), HasSubstr("notes.txt"));
  EXPECT_TRUE(find({.claim = Claim::kLook}).ok());
}

}  // namespace
}  // namespace sluice::store
