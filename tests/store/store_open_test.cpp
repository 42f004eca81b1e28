#include "recovery_fixture.hpp"

namespace sluice::store {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using StoreOpenTest = RecoveryTest;

TEST_F(StoreOpenTest, ContainerHoldsItsPartsOneAfterTheOther) {
  use_drives(2);
  const auto store = created(options_);
  for (std::uint32_t drive = 0; drive < 2; ++drive) {
    SuperblockBytes bytes;
    ASSERT_TRUE(store->data(drive).read_exact(0, bytes).ok());
    const auto superblock = decode(bytes);
    ASSERT_TRUE(superblock.ok()) << superblock.status().to_string();
    EXPECT_EQ(superblock->drive, drive);
    EXPECT_EQ(superblock->keep_commits, 2u);
    EXPECT_EQ(superblock->catalog_offset, 4096u);
    EXPECT_EQ(superblock->places_offset, 8192u);
    EXPECT_EQ(superblock->place_bytes, 8192u);  // 5000 on the grid
    EXPECT_EQ(superblock->place_count, 3u);
    EXPECT_EQ(superblock->slots_offset, 8192u + 3 * 8192);
    EXPECT_EQ(superblock->container_bytes, *store->data(drive).size());
    EXPECT_FALSE(superblock->committed);
    EXPECT_EQ(store->place_offset(2), 8192u + 2 * 8192);
  }
  // Chunks 0, 2 and 1, 3; four slots for a stepped one.
  EXPECT_EQ(*store->data(0).size(), 32768u + 8 * 196608);
  EXPECT_EQ(*store->data(1).size(), 32768u + 4 * 196608 + 4096);
  EXPECT_EQ(store->reserved_bytes(), needed(options_));
}

TEST_F(StoreOpenTest, SuperblockIsEncodedAsTheWholeFirstGrid) {
  const auto store = created(options_);
  std::vector<std::byte> bytes(4096, std::byte{1});
  store->encode_superblock(0, Committed::kYes, bytes);
  EXPECT_TRUE(decode(bytes)->committed);
  EXPECT_TRUE(is_blank(std::span(bytes).subspan(kSuperblockBytes)));
  store->encode_superblock(0, Committed::kNo, bytes);
  std::vector<std::byte> stored(4096);
  ASSERT_TRUE(store->data(0).read_exact(0, stored).ok());
  EXPECT_EQ(bytes, stored);
}

TEST_F(StoreOpenTest, NothingDiffersFromWhatItWasMadeWith) {
  use_drives(2);
  leave_run({1});
  EXPECT_THAT(Store::differences(found(), options_, 2), IsEmpty());
  options_.record_bytes_max = 8192;
  EXPECT_THAT(Store::differences(found(), options_, 2), IsEmpty()) << "the place has that room";
}

TEST_F(StoreOpenTest, EachDifferenceIsToldWithBothValues) {
  const std::vector<StoredAlias> aliases = {{"tied", 0}};
  options_.aliases = aliases;
  leave_run({1});
  const ExistingRank rank = found();
  const auto difference = [&](auto change, std::uint32_t drives = 1) {
    StoreOptions options = options_;
    change(options);
    const auto all = Store::differences(rank, options, drives);
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? "" : all[0];
  };
  EXPECT_EQ(difference([](auto&) {}, 3), "drives: 1 in the store, 3 here");
  EXPECT_EQ(difference([](auto& o) { o.world = 2; }), "world: 1 in the store, 2 here");
  EXPECT_EQ(difference([](auto& o) { o.chunk_elements = 32768; }),
            "chunk_elements: 16384 in the store, 32768 here");
  EXPECT_EQ(difference([](auto& o) { o.grid_bytes = 8192; }), "grid_bytes: 4096 in the store, 8192 here");
  EXPECT_EQ(difference([](auto& o) { o.keep_commits = 3; }), "keep_commits: 2 in the store, 3 here");
  EXPECT_EQ(difference([](auto& o) { o.undo = Undo::kOff; }), "undo: on in the store, off here");
  EXPECT_EQ(difference([](auto& o) { o.record_bytes_max = 8193; }),
            "room for a commit record: 8192 bytes in the store, 8193 here");
  std::vector<StoredParameter> parameters = parameters_;
  parameters[1].shape = {100, 10};
  EXPECT_THAT(difference([&](auto& o) { o.parameters = parameters; }),
              AllOf(HasSubstr("\"frozen\" [10, 100]"), HasSubstr("\"frozen\" [100, 10]")));
  parameters = {parameters_[0]};
  EXPECT_EQ(difference([&](auto& o) { o.parameters = parameters; }),
            "parameters: 2 in the store, 1 registered");
  const std::vector<StoredAlias> renamed = {{"knotted", 0}};
  EXPECT_THAT(difference([&](auto& o) { o.aliases = renamed; }),
              AllOf(HasSubstr("\"tied\" tied to parameter 0"), HasSubstr("\"knotted\"")));
}

TEST_F(StoreOpenTest, ManyParametersThatDifferAreCounted) {
  for (int i = 0; i < 10; ++i) {
    parameters_.push_back({.name = "more" + std::to_string(i), .shape = {0}, .group = 0});
  }
  options_.parameters = parameters_;
  leave_run({1});
  std::vector<StoredParameter> others = parameters_;
  for (StoredParameter& other : others) other.name += "'";
  options_.parameters = others;
  const auto all = Store::differences(found(), options_, 1);
  EXPECT_EQ(all.size(), 5u);
  EXPECT_EQ(all.back(), "parameters: and 8 more");
}

TEST_F(StoreOpenTest, StoreThatWasNeverMadeWholeDiffersFromAll) {
  fs::create_directories(rank_path("a"));
  EXPECT_EQ(Store::differences(found(), options_, 1).size(), 1u);
}

TEST_F(StoreOpenTest, RecordThatNamesNoSlotIsRefusedAndTheStoreStays) {
  auto store = created(options_);
  CommitRecord record = commit(*store, {1})[0];
  record.chunks[1].place = record.chunks[0].place;
  write_record(*store, record, 0);
  store->keep();
  ASSERT_TRUE(store->close().ok());
  const auto before = names();
  const Status status = recover().status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(rank_path("a") + ": commit 1"), HasSubstr("chunk 0 is there")));
  EXPECT_EQ(names(), before);
  EXPECT_TRUE(find().ok()) << "its lock is free again";
}

TEST_F(StoreOpenTest, CommitsThatTheRankDoesNotHoldAreRefused) {
  leave_run({1});
  for (const std::vector<std::uint64_t>& kept : {std::vector<std::uint64_t>{}, {1, 2}}) {
    const auto drives = Drives::open(paths_, io::Access::kReadWrite);
    const auto guards = drives->guard();
    auto ranks = find_existing(drives->directories(), {}, Owner::make());
    ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
    EXPECT_EQ(Store::open(*drives, options_, std::move(ranks->at(0)), kept).status().code(),
              Code::kInvalidArgument);
  }
  EXPECT_TRUE(recover().ok());
}

TEST_F(StoreOpenTest, StoreThatLacksADriveIsRefused) {
  use_drives(2);
  leave_run({1});
  paths_.pop_back();
  const auto drives = Drives::open(paths_, io::Access::kReadWrite);
  const auto guards = drives->guard();
  auto ranks = find_existing(drives->directories(), {}, Owner::make());
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  const std::vector<std::uint64_t> kept = {1};
  const Status status = Store::open(*drives, options_, std::move(ranks->at(0)), kept).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("drive 1 of 2"));
}

TEST_F(StoreOpenTest, FrozenRecordsGrowTheContainerAndComeBack) {
  use_drives(2);
  auto store = created(options_);
  const auto records = commit(*store, {1});
  const std::uint64_t made_bytes = *store->data(1).size(), reserved_bytes = store->reserved_bytes();
  EXPECT_EQ(store->acquire_slot(3), std::nullopt);
  const auto grown = store->grow_slot(3);
  ASSERT_TRUE(grown.ok()) << grown.status().to_string();
  EXPECT_EQ(grown->drive, 1u);
  EXPECT_EQ(grown->offset, made_bytes);
  EXPECT_EQ(*store->data(1).size(), made_bytes + 4096);
  EXPECT_EQ(store->reserved_bytes(), reserved_bytes + 4096);
  CommitRecord second = records[0];
  second.number = 2;
  second.chunks[3].place = *grown;
  write_record(*store, second, 1);
  store->keep();
  ASSERT_TRUE(store->close().ok());

  store = recovered();
  EXPECT_THAT(numbers_of(store->kept()), ElementsAre(1u, 2u));
  EXPECT_EQ(store->reserved_bytes(), reserved_bytes + 4096);
  store->release_slot(3, records[0].chunks[3].place);
  EXPECT_EQ(store->acquire_slot(3)->offset, records[0].chunks[3].place.offset);
  EXPECT_EQ(store->grow_slot(3)->offset, made_bytes + 4096);
  ASSERT_TRUE(store->close().ok());

  fs::resize_file(data_path(1), made_bytes);
  const Status status = recover().status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(data_path(1) + ": truncated"), HasSubstr(std::to_string(made_bytes)),
                    HasSubstr(std::to_string(made_bytes + 4096))));
}

TEST_F(StoreOpenTest, RoomThatADeadRunGrewIsUsedBeforeMoreIsTaken) {
  leave_run({1});
  const std::uint64_t made_bytes = fs::file_size(data_path(0));
  fs::resize_file(data_path(0), made_bytes + 4096);
  options_.nvme_budget_bytes = made_bytes + 4096;
  const auto store = recovered();
  EXPECT_EQ(store->reserved_bytes(), made_bytes + 4096);
  EXPECT_EQ(store->grow_slot(3)->offset, made_bytes);
  EXPECT_EQ(store->reserved_bytes(), made_bytes + 4096);
}

TEST_F(StoreOpenTest, GrowthBeyondTheBudgetIsRefusedWithTheArithmetic) {
  options_.nvme_budget_bytes = needed(options_) + 4095;
  const auto store = created(options_);
  commit(*store, {1});
  const std::uint64_t file_bytes = *store->data(0).size();
  const Status status = store->grow_slot(3).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("chunk 3"), HasSubstr("needs 4096 bytes"),
                    HasSubstr("nvme_budget_bytes = " + std::to_string(needed(options_) + 4095)),
                    HasSubstr("smallest that would do is " + std::to_string(needed(options_) + 4096))));
  EXPECT_EQ(*store->data(0).size(), file_bytes);
  EXPECT_EQ(store->reserved_bytes(), needed(options_));
}

TEST_F(StoreOpenTest, BudgetCountsWhatIsInUseBeside) {
  options_.nvme_bytes_in_use = 1 << 20;
  options_.nvme_budget_bytes = needed(options_) + (1 << 20) - 1;
  const Status status = refusal();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("smallest that would do is " + std::to_string(needed(options_) + (1 << 20))),
                    HasSubstr("1048576 in the store that is there")));
  options_.nvme_budget_bytes += 1;
  EXPECT_TRUE(create(options_).ok());
}

TEST_F(StoreOpenTest, StoreThatIsThereMustFitTheBudgetToo) {
  leave_run({1});
  options_.spilled_gradient_slots = 2;
  options_.nvme_budget_bytes = needed(options_) - 1;
  const Status status = recover().status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("smallest that would do is " + std::to_string(needed(options_))),
                    HasSubstr("131072 for spilled gradients")));
  options_.nvme_budget_bytes += 1;
  EXPECT_EQ(recovered()->reserved_bytes(), needed(options_));
}

TEST_F(StoreOpenTest, RecordRoomBeyondOneFileIsRefused) {
  for (const std::uint64_t bytes : {~std::uint64_t{0}, std::uint64_t{1} << 62}) {
    options_.record_bytes_max = bytes;
    EXPECT_EQ(refusal().code(), Code::kResourceExhausted);
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreOpenTest, CatalogThatNoneCanReadIsRefusedBeforeAnythingIsMade) {
  parameters_[1].name = parameters_[0].name;
  EXPECT_EQ(refusal().code(), Code::kInvalidArgument);
  EXPECT_THAT(names(), IsEmpty());
}

}  // namespace
}  // namespace sluice::store
