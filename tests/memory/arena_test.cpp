#include "memory/arena.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include "memory/memory_room.hpp"
#include "memory/resident_pages.hpp"

namespace sluice::memory {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

Arena make_arena(const ArenaOptions& options) {
  Result<Arena> arena = Arena::create(options);
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  return arena.ok() ? std::move(arena).value() : Arena();
}

ResidentPages pages_of(const Arena& arena) {
  const auto begin = reinterpret_cast<std::uintptr_t>(arena.span().data());
  return read_resident_pages(begin, begin + arena.span().size());
}

TEST(Arena, HoldsExactlyTheBytesRoundedUpToAPage) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{4097}, 2 * kMiB,
                                    3 * kMiB, 5 * kMiB + 12288, 33 * kMiB + 1}) {
    for (const HugePages huge_pages : {HugePages::kTry, HugePages::kNever}) {
      const Arena arena = make_arena({.bytes = bytes, .purpose = "test", .huge_pages = huge_pages});
      EXPECT_EQ(arena.span().size(), bytes);
      EXPECT_EQ(pages_of(arena).resident_bytes, (bytes + 4095) / 4096 * 4096) << bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.span().data()) % (2 * kMiB), 0u);
    }
  }
}

TEST(Arena, IsZeroedAndWritableToItsEnd) {
  const Arena arena = make_arena({.bytes = 5 * kMiB + 1, .purpose = "test", .prefault_threads = 3});
  EXPECT_TRUE(
      std::all_of(arena.span().begin(), arena.span().end(), [](std::byte b) { return b == std::byte{0}; }));
  std::memset(arena.span().data(), 0xA5, arena.span().size());
  EXPECT_EQ(arena.span().back(), std::byte{0xA5});
}

TEST(Arena, ManyThreadsFaultInEverySlice) {
  const Arena arena = make_arena(
      {.bytes = 97 * kMiB + 4096, .purpose = "test", .prefault_threads = 8, .huge_pages = HugePages::kNever});
  EXPECT_EQ(pages_of(arena).resident_bytes, 97 * kMiB + 4096);
}

TEST(Arena, BackingSaysWhatTheKernelReports) {
  const Arena small_pages =
      make_arena({.bytes = 4 * kMiB, .purpose = "test", .huge_pages = HugePages::kNever});
  EXPECT_EQ(small_pages.backing(), "4 KiB pages");
  EXPECT_EQ(pages_of(small_pages).huge_bytes, 0u);

  const Arena arena = make_arena({.bytes = 3 * kMiB, .purpose = "test"});
  const std::uint64_t huge_bytes = pages_of(arena).huge_bytes;
  EXPECT_EQ(arena.backing(), huge_bytes == 0
                                 ? "4 KiB pages"
                                 : "huge pages (transparent) for 2048 of 3072 KiB, else 4 KiB pages");
  EXPECT_EQ(arena.hugetlb_bytes(), 0u);
}

TEST(Arena, WholeHugePagesAreSaidPlainly) {
  const Arena arena = make_arena({.bytes = 8 * kMiB, .purpose = "test"});
  const std::uint64_t huge_bytes = pages_of(arena).huge_bytes;
  if (huge_bytes < 8 * kMiB) GTEST_SKIP() << "the kernel gave " << huge_bytes << " bytes of huge pages";
  EXPECT_EQ(arena.backing(), "huge pages (transparent)");
}

TEST(Arena, NeighboursAreCountedApart) {
  std::vector<Arena> arenas;
  for (int i = 0; i < 16; ++i) arenas.push_back(make_arena({.bytes = 2 * kMiB, .purpose = "test"}));
  for (const Arena& arena : arenas) EXPECT_EQ(pages_of(arena).resident_bytes, 2 * kMiB);
}

TEST(Arena, MoreThanTheMachineHasIsRefusedWithTheArithmetic) {
  const std::uint64_t machine_bytes = read_memory_room().machine_bytes;
  for (const std::uint64_t bytes : {machine_bytes + 1, std::uint64_t{1} << 62, UINT64_MAX}) {
    const Result<Arena> arena = Arena::create({.bytes = bytes, .purpose = "host frames"});
    ASSERT_FALSE(arena.ok());
    EXPECT_EQ(arena.status().code(), Code::kResourceExhausted);
    EXPECT_NE(arena.status().message().find("host frames: " + std::to_string(bytes) + " bytes needed"),
              std::string::npos);
    EXPECT_NE(arena.status().message().find(std::to_string(machine_bytes)), std::string::npos)
        << arena.status().message();
  }
}

TEST(Arena, ThreadCountOutOfRangeIsRefused) {
  for (const std::uint32_t threads : {0u, 1025u})
    EXPECT_EQ(Arena::create({.bytes = 1, .purpose = "test", .prefault_threads = threads}).status().code(),
              Code::kInvalidArgument);
}

TEST(Arena, NothingIsAnEmptyArena) {
  const Arena arena = make_arena({.bytes = 0, .purpose = "test"});
  EXPECT_TRUE(arena.span().empty());
  EXPECT_EQ(arena.backing(), "none");
}

TEST(Arena, MoveLeavesAnEmptyArenaAndDropUnmaps) {
  Arena first = make_arena({.bytes = kMiB, .purpose = "test"});
  std::byte* data = first.span().data();
  Arena second = std::move(first);
  EXPECT_TRUE(first.span().empty());  // NOLINT(bugprone-use-after-move): the moved-from state is the claim
  EXPECT_EQ(first.backing(), "none");
  EXPECT_EQ(second.span().data(), data);
  second = Arena();
  unsigned char resident = 0;
  EXPECT_EQ(mincore(data, 4096, &resident), -1);
}

TEST(Arena, ForkedChildDoesNotInheritThePages) {
  Arena arena = make_arena({.bytes = kMiB, .purpose = "test"});
  std::byte* data = arena.span().data();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsigned char resident = 0;
    const bool absent = mincore(data, 4096, &resident) == -1;
    // Somebody else's mapping at the same place survives the child's copy of the arena.
    void* other = mmap(data, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    arena = Arena();
    const bool survives = other == data && mincore(data, 4096, &resident) == 0;
    _exit(absent && survives ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  data[0] = std::byte{1};
}

TEST(ResidentPages, AddsUpTheMappingsThatStartInTheRange) {
  std::istringstream smaps(
      "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n"
      "Size:               2048 kB\n"
      "Rss:                2048 kB\n"
      "AnonHugePages:      2048 kB\n"
      "7f0000200000-7f0000300000 rw-p 00000000 00:00 0 \n"
      "Rss:                 512 kB\n"
      "AnonHugePages:         0 kB\n"
      "7f0000300000-7f0000400000 r--p 00000000 fe:00 1 /a file\n"
      "Rss:                 100 kB\n");
  const ResidentPages pages = parse_resident_pages(smaps, 0x7f0000000000, 0x7f0000300000);
  EXPECT_EQ(pages.resident_bytes, (2048u + 512u) * 1024);
  EXPECT_EQ(pages.huge_bytes, 2048u * 1024);
}

}  // namespace
}  // namespace sluice::memory
