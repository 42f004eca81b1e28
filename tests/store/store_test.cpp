#include "store/store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "store/superblock.hpp"
#include "store_fixture.hpp"
#include "support/child.hpp"

namespace sluice::store {
namespace {

using sim::Child;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

mode_t mode_of(const std::string& path) {
  struct stat found;
  EXPECT_EQ(::lstat(path.c_str(), &found), 0) << path;
  return found.st_mode & 07777;
}

std::uint64_t allocated_bytes(const std::string& path) {
  struct stat found;
  EXPECT_EQ(::lstat(path.c_str(), &found), 0) << path;
  return static_cast<std::uint64_t>(found.st_blocks) * 512;
}

TEST_F(StoreTest, KeepsFewFilesForTheirOwnerAlone) {
  const auto store = created();
  EXPECT_THAT(
      names(),
      ElementsAre("a/store-0000000000000abc", "a/store-0000000000000abc/rank-00000",
                  "a/store-0000000000000abc/rank-00000/data", "a/store-0000000000000abc/rank-00000/lock",
                  "a/store-0000000000000abc/rank-00000/owner", "b/store-0000000000000abc",
                  "b/store-0000000000000abc/rank-00000", "b/store-0000000000000abc/rank-00000/data",
                  "b/store-0000000000000abc/rank-00000/lock", "b/store-0000000000000abc/rank-00000/owner"));
  for (const char* drive : {"a", "b"}) {
    EXPECT_EQ(mode_of(path(drive) + "/store-0000000000000abc"), 0700u);
    EXPECT_EQ(mode_of(rank_path(drive)), 0700u);
    for (const char* file : {"/data", "/lock", "/owner"}) EXPECT_EQ(mode_of(rank_path(drive) + file), 0600u);
  }
}

TEST_F(StoreTest, CloseLeavesNothing) {
  auto store = created();
  EXPECT_TRUE(store->close().ok());
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_TRUE(store->close().ok());
}

TEST_F(StoreTest, DestructionLeavesNothing) {
  created().reset();
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreTest, ReservesWhatItSaysAndNoLess) {
  const auto store = created();
  EXPECT_EQ(store->reserved_bytes(), needed(options_));
  std::uint64_t bytes = 0;
  for (std::uint32_t drive = 0; drive < 2; ++drive) {
    bytes += *store->data(drive).size() + *store->gradients(drive).size();
    EXPECT_GE(allocated_bytes(rank_path(drive == 0 ? "a" : "b") + "/data"), *store->data(drive).size());
  }
  EXPECT_EQ(store->reserved_bytes(), bytes);
  // Chunks 0, 2 and 1, 3 on a drive each; stepped slots are 12 * 16 Ki bytes, frozen ones a page.
  EXPECT_EQ(*store->data(0).size(), 4096u + 4 * 196608);
  EXPECT_EQ(*store->data(1).size(), 4096u + 2 * 196608 + 4096);
  EXPECT_EQ(*store->gradients(0).size(), 2u * 65536);
  EXPECT_EQ(*store->gradients(1).size(), 65536u);
}

TEST_F(StoreTest, GradientPlacesAreApart) {
  const auto store = created();
  std::set<std::pair<std::uint32_t, std::uint64_t>> places;
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    const io::Place place = store->gradient_place(slot);
    EXPECT_EQ(place.offset % 65536, 0u);
    EXPECT_LE(place.offset + 65536, *store->gradients(place.drive).size());
    places.emplace(place.drive, place.offset);
  }
  EXPECT_EQ(places.size(), 3u);
}

TEST_F(StoreTest, RecordsOfAllChunksKeepTheirBytes) {
  const auto store = created();
  std::vector<io::Place> places;
  for (const std::uint32_t chunk : stored_) {
    places.push_back(*store->acquire_slot(chunk));
    const std::vector<std::byte> record(layout_.chunks()[chunk].record.bytes,
                                        static_cast<std::byte>(chunk + 1));
    ASSERT_TRUE(store->data(places.back().drive).write_exact(places.back().offset, record).ok());
  }
  for (const std::uint32_t chunk : stored_) {
    std::vector<std::byte> record(layout_.chunks()[chunk].record.bytes);
    ASSERT_TRUE(store->data(places[chunk].drive).read_exact(places[chunk].offset, record).ok());
    EXPECT_THAT(record, testing::Each(static_cast<std::byte>(chunk + 1)));
  }
  for (std::uint32_t drive = 0; drive < 2; ++drive) {
    SuperblockBytes bytes;
    ASSERT_TRUE(store->data(drive).read_exact(0, bytes).ok());
    EXPECT_TRUE(decode(bytes).ok()) << "no slot lies over the superblock";
  }
}

TEST_F(StoreTest, SuperblocksTellTheDrivesApartAndTheVolumeTogether) {
  options_.rank = 1;
  options_.world = 2;
  options_.undo = Undo::kOff;
  const auto store = created();
  std::vector<Superblock> superblocks;
  for (std::uint32_t drive = 0; drive < 2; ++drive) {
    SuperblockBytes bytes;
    ASSERT_TRUE(store->data(drive).read_exact(0, bytes).ok());
    const auto superblock = decode(bytes);
    ASSERT_TRUE(superblock.ok()) << superblock.status().to_string();
    EXPECT_EQ(superblock->drive, drive);
    EXPECT_EQ(superblock->drives, 2u);
    EXPECT_EQ(superblock->store_id, 0xabcu);
    EXPECT_EQ(superblock->rank, 1u);
    EXPECT_EQ(superblock->world, 2u);
    EXPECT_EQ(superblock->undo, Undo::kOff);
    EXPECT_EQ(superblock->keep_commits, 0u);
    EXPECT_EQ(superblock->chunk_elements, 16384u);
    EXPECT_EQ(superblock->container_bytes, *store->data(drive).size());
    superblocks.push_back(*superblock);
  }
  EXPECT_EQ(superblocks[0].volume_id, superblocks[1].volume_id);
  EXPECT_NE(superblocks[0].volume_id, VolumeId{});
}

TEST_F(StoreTest, RanksShareDirectories) {
  options_.world = 2;
  const auto first = created();
  options_.rank = 1;
  auto second = created();
  EXPECT_TRUE(fs::exists(rank_path("a", "store-0000000000000abc", "rank-00001") + "/data"));
  ASSERT_TRUE(second->close().ok());
  EXPECT_TRUE(fs::exists(rank_path("a") + "/data"));
}

TEST_F(StoreTest, LaterChdirChangesNothing) {
  const auto before = fs::current_path();
  fs::current_path(temporary_.path());
  paths_ = {"a", "b"};
  auto store = created();
  fs::create_directory(path("elsewhere"));
  fs::current_path(path("elsewhere"));
  const std::vector<std::byte> bytes(4096);
  EXPECT_TRUE(store->data(1).write_exact(store->acquire_slot(1)->offset, bytes).ok());
  EXPECT_TRUE(store->close().ok());
  fs::current_path(before);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreTest, ForkedChildLeavesTheParentsStore) {
  auto store = created();
  Child child([&] {
    store.reset();
    return std::string("gone");
  });
  EXPECT_EQ(child.report(), "gone");
  EXPECT_TRUE(fs::exists(rank_path("a") + "/data"));
  EXPECT_TRUE(store->close().ok());
}

TEST_F(StoreTest, SaysHowItReachesTheDrives) {
  const auto store = created();
  EXPECT_EQ(store->direct() == "O_DIRECT", store->fallback_reasons().empty());
  EXPECT_EQ(store->direct() == "O_DIRECT", store->data(0).direct() && store->data(1).direct() &&
                                               store->gradients(0).direct() && store->gradients(1).direct());
}

TEST_F(StoreTest, BudgetThatIsMetExactlyIsEnough) {
  options_.nvme_budget_bytes = needed(options_);
  const auto store = created();
  EXPECT_EQ(store->reserved_bytes(), options_.nvme_budget_bytes);
}

TEST_F(StoreTest, BudgetTooSmallIsRefusedWithTheArithmeticBeforeAnythingIsMade) {
  const std::uint64_t needed_bytes = needed(options_);
  options_.nvme_budget_bytes = needed_bytes - 1;
  const Status status = refusal();
  ASSERT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("nvme_budget_bytes = " + std::to_string(needed_bytes - 1)));
  EXPECT_THAT(status.message(), HasSubstr("smallest that would do is " + std::to_string(needed_bytes)));
  EXPECT_THAT(status.message(), HasSubstr("196608 for spilled gradients"));
  options_.undo = Undo::kOff;
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(needed(options_)) + " without undo"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreTest, NeedsBeyond64BitsAreRefusedNotWrapped) {
  options_.spilled_gradient_slots = std::uint64_t{1} << 40;
  options_.spilled_gradient_bytes = std::uint64_t{1} << 40;
  EXPECT_EQ(needed(options_), ~std::uint64_t{0});
  options_.nvme_budget_bytes = 1 << 20;
  EXPECT_EQ(refusal().code(), Code::kResourceExhausted);
  options_.nvme_budget_bytes = 0;
  EXPECT_FALSE(refusal().ok());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreTest, OptionsOutOfRangeAreRefused) {
  StoreOptions outside = options_;
  outside.rank = 1;
  EXPECT_EQ(refusal(outside).code(), Code::kInvalidArgument);
  StoreOptions unknown = options_;
  const std::vector<std::uint32_t> stored = {4};
  unknown.stored_chunks = stored;
  EXPECT_THAT(refusal(unknown).message(), HasSubstr("chunk 4"));
  StoreOptions off_grid = options_;
  off_grid.spilled_gradient_bytes = 1000;
  EXPECT_THAT(refusal(off_grid).message(), HasSubstr("spilled_gradient_bytes = 1000"));
  StoreOptions coarse = options_;
  coarse.grid_bytes = 1 << 20;  // records were laid out on 4096
  EXPECT_THAT(refusal(coarse).message(), HasSubstr("grid of 1048576"));
  StoreOptions nothing = options_;
  nothing.grid_bytes = 0;
  EXPECT_THAT(refusal(nothing).message(), HasSubstr("grid_bytes = 0"));
  StoreOptions many = options_;
  many.keep_commits = 16;
  EXPECT_THAT(refusal(many).message(), HasSubstr("keep_commits = 16: not from 0 to 15"));
  StoreOptions part = options_;
  part.keep_commits = 1;
  part.record_bytes_max = 4096;
  const std::vector<std::uint32_t> three = {0, 1, 2};
  part.stored_chunks = three;
  EXPECT_THAT(refusal(part).message(), HasSubstr("3 of 4 chunks"));
  StoreOptions roomless = options_;
  roomless.keep_commits = 1;
  EXPECT_THAT(refusal(roomless).message(), HasSubstr("record_bytes_max = 0"));
  StoreOptions scratch = options_;
  scratch.parent_store_id = 1;
  EXPECT_THAT(refusal(scratch).message(), HasSubstr("parent_store_id = 0000000000000001"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StoreTest, GridOfDrivesIsFoundAndLeavesNothing) {
  const auto drives = Drives::open(paths_, io::Access::kReadWrite);
  ASSERT_TRUE(drives.ok()) << drives.status().to_string();
  const auto grid_bytes = drives->grid();
  ASSERT_TRUE(grid_bytes.ok()) << grid_bytes.status().to_string();
  EXPECT_GE(*grid_bytes, 4096u);
  EXPECT_EQ(*grid_bytes & (*grid_bytes - 1), 0u);
  EXPECT_THAT(names(), IsEmpty());
}

}  // namespace
}  // namespace sluice::store
