#include "tools/nvme/test_bed.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "run_command.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kBlockBytes = 64 << 10;

/// A bed over two directories, and damage to what lies in them.
class Bed : public testing::TestWithParam<std::tuple<peers::Mix, peers::Pattern, std::uint32_t>> {
 protected:
  peers::Mix mix() const { return std::get<0>(GetParam()); }
  peers::Pattern pattern() const { return std::get<1>(GetParam()); }
  std::uint32_t threads() const { return std::get<2>(GetParam()); }

  void make(Verify verify) {
    auto made = TestBed::create({.directories = {first_.path(), second_.path()},
                                 .size_bytes = 4 << 20,
                                 .block_bytes = kBlockBytes,
                                 .depth_max = 6,
                                 .memory_bytes = 12 * kBlockBytes,
                                 .threads = threads(),
                                 .cpus = {},
                                 .verify = verify});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    bed_ = std::move(*made);
    ASSERT_TRUE(bed_->fill().ok());
  }

  Result<RunResult> run(std::uint64_t bytes, std::optional<std::uint32_t> batch = 1) {
    return bed_->run({.mix = mix(),
                      .pattern = pattern(),
                      .block_bytes = kBlockBytes,
                      .drives = {2, {.piece_bytes = 16 << 10, .depth = 6}},
                      .batch = batch,
                      .bytes_max = bytes});
  }

  // A bit of a drive's file, behind the bed's back.
  void flip(std::uint32_t drive, std::uint64_t offset) {
    const std::string path = "/proc/self/fd/" + std::to_string(bed_->file(drive).fd());
    const io::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_GE(file.get(), 0);
    char byte = 0;
    ASSERT_EQ(::pread(file.get(), &byte, 1, static_cast<off_t>(offset)), 1);
    byte = static_cast<char>(byte ^ 0x04);
    ASSERT_EQ(::pwrite(file.get(), &byte, 1, static_cast<off_t>(offset)), 1);
    ASSERT_EQ(::fsync(file.get()), 0);
  }

  ScratchDirectory first_;
  ScratchDirectory second_;
  std::unique_ptr<TestBed> bed_;
};

TEST_P(Bed, WhatWasWrittenLastIsFoundEverywhere) {
  make(Verify::kYes);
  ASSERT_TRUE(bed_->check().ok());
  for (int i = 0; i < 3; ++i) {
    const auto result = run(777 * kBlockBytes);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->counts.blocks, 777U);
    EXPECT_EQ(result->counts.bytes_read + result->counts.bytes_written, 777 * kBlockBytes);
    EXPECT_EQ(result->counts.timeline.bytes(), 777 * kBlockBytes);
    EXPECT_EQ(result->counts.latency.count(), 777U);
    const Status found = bed_->check();
    ASSERT_TRUE(found.ok()) << found.to_string();
  }
  EXPECT_TRUE(first_.names().empty());
}

TEST_P(Bed, AFlippedBitIsFoundAndNamed) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  make(Verify::kYes);
  ASSERT_TRUE(run(200 * kBlockBytes).ok());
  const std::uint64_t offset = random() % bed_->file_bytes();
  const std::uint32_t drive = random() % 2;
  flip(drive, offset);
  const Status found = bed_->check();
  EXPECT_EQ(found.code(), Code::kDataLoss);
  EXPECT_THAT(found.message(), testing::HasSubstr("offset " + std::to_string(offset) + " "));
  EXPECT_THAT(found.message(), testing::HasSubstr(drive == 0 ? first_.path() : second_.path()));
  flip(drive, offset);
  EXPECT_TRUE(bed_->check().ok());
}

TEST_P(Bed, ADriveThatRestsIsLeftAlone) {
  make(Verify::kNo);
  const auto result =
      bed_->run({.mix = mix(),
                 .pattern = pattern(),
                 .block_bytes = 2 * kBlockBytes,  // not what was written with
                 .drives = {{.piece_bytes = 1, .depth = 0}, {.piece_bytes = 2 * kBlockBytes, .depth = 4}},
                 .bytes_max = 50 * kBlockBytes});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->counts.blocks, 25U);
}

TEST_P(Bed, CompletionsAreTakenAsManyAtATimeAsAsked) {
  make(Verify::kYes);
  for (const std::optional<std::uint32_t> batch : std::vector<std::optional<std::uint32_t>>{2, 4, {}}) {
    const auto result = run(777 * kBlockBytes, batch);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->counts.blocks, 777U);
    EXPECT_EQ(result->counts.batch, batch.value_or(1));
    const Status found = bed_->check();
    ASSERT_TRUE(found.ok()) << found.to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryWay, Bed,
    testing::Combine(testing::Values(peers::Mix::kRead, peers::Mix::kWrite, peers::Mix::kMixed),
                     testing::Values(peers::Pattern::kSequential, peers::Pattern::kRandom),
                     testing::Values(1U, 3U)));

TEST(BlocksInFlight, KeepThatManyPiecesInFlight) {
  EXPECT_EQ(blocks_in_flight({.piece_bytes = 4096, .depth = 7}, 4096), 7U);
  EXPECT_EQ(blocks_in_flight({.piece_bytes = 8192, .depth = 7}, 4096), 7U);
  EXPECT_EQ(blocks_in_flight({.piece_bytes = 4096, .depth = 8}, 4 * 4096), 3U);
  EXPECT_EQ(blocks_in_flight({.piece_bytes = 4096, .depth = 9}, 4 * 4096), 4U);
  EXPECT_EQ(blocks_in_flight({.piece_bytes = 1, .depth = 0}, 4096), 0U);
}

TEST(Batch, LeavesEveryDriveBusy) {
  constexpr std::uint32_t kKiB = 1 << 10, kMiB = 1 << 20;
  const auto of = [](std::uint32_t piece_bytes, std::uint32_t depth) {
    return batch_of({{.piece_bytes = piece_bytes, .depth = depth}});
  };
  EXPECT_EQ(of(8 * kMiB, 1), 1U);
  EXPECT_EQ(of(8 * kMiB, 7), 1U) << "one is more than an eighth of the depth";
  EXPECT_EQ(of(8 * kMiB, 8), 2U);
  EXPECT_EQ(of(8 * kMiB, 32), 5U);
  EXPECT_EQ(of(8 * kMiB, 4096), 16U);
  EXPECT_EQ(of(256 * kKiB, 8), 2U) << "1.75 MiB stay in flight";
  EXPECT_EQ(of(128 * kKiB, 12), 1U) << "1.375 MiB would";
  EXPECT_EQ(of(4 * kKiB, 256), 1U);
  EXPECT_EQ(of(4 * kKiB, 400), 16U);
  EXPECT_EQ(batch_of({{.piece_bytes = kMiB, .depth = 32}, {.piece_bytes = kMiB, .depth = 8}}), 2U);
  EXPECT_EQ(batch_of({{.piece_bytes = kMiB, .depth = 32}, {.piece_bytes = 1, .depth = 0}}), 5U)
      << "the other drive rests";
}

TEST(Batch, IsOneNearTheEnd) {
  EXPECT_EQ(completions_to_await(5, 1000, 0), 5U);
  EXPECT_EQ(completions_to_await(5, 1000, 500), 5U);
  EXPECT_EQ(completions_to_await(5, 999, 500), 1U);
  EXPECT_EQ(completions_to_await(5, 1, 500), 1U);
  EXPECT_EQ(completions_to_await(5, 0, 500), 5U) << "after it nothing is measured";
  EXPECT_EQ(completions_to_await(5, io::kNoDeadline - 1000, 500), 5U) << "no end is foreseen";
}

/// A backend that notes how many events were waited for.
class Noting final : public io::Backend {
 public:
  Noting(std::unique_ptr<io::Backend> inner, std::vector<std::uint32_t>& noted)
      : inner_(std::move(inner)), noted_(noted) {}
  std::string_view name() const override { return inner_->name(); }
  io::BackendLimits limits() const override { return inner_->limits(); }
  io::Request* submit(io::Request* first) override { return inner_->submit(first); }
  io::Request* reap() override { return inner_->reap(); }
  void wait(std::int64_t deadline_ns, std::uint32_t events) override {
    noted_.push_back(events);
    inner_->wait(deadline_ns, events);
  }
  void wake() override { inner_->wake(); }

 private:
  std::unique_ptr<io::Backend> inner_;
  std::vector<std::uint32_t>& noted_;
};

TEST(Batch, IsWhatASubmitterWaitsFor) {
  const ScratchDirectory scratch;
  const auto directory = io::Directory::open(scratch.path(), io::Access::kReadWrite);
  ASSERT_TRUE(directory.ok());
  const auto file = io::File::open_unnamed(*directory);
  ASSERT_TRUE(file.ok());
  const auto arena = memory::Arena::create({.bytes = 8 * kBlockBytes, .purpose = "a test"});
  ASSERT_TRUE(arena.ok());
  auto opened = io::open_backend({.queue_depth = 8, .threads = 8, .cpus = {}});
  ASSERT_TRUE(opened.ok());
  std::vector<std::uint32_t> noted;
  Submitter submitter(std::make_unique<Noting>(std::move(opened->backend), noted), arena->span(), 1);
  const DriveRun run{.mix = peers::Mix::kWrite, .block_bytes = kBlockBytes, .drives = {}, .batch = 3};
  std::atomic<bool> failed = false;
  const Status status = submitter.run({.run = &run,
                                       .settings = {{.piece_bytes = kBlockBytes, .depth = 8}},
                                       .drives = {{.file = &*file, .blocks = 64}},
                                       .blocks_max = 200,
                                       .end_ns = io::kNoDeadline,
                                       .failed = &failed});
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(submitter.counts().blocks, 200U);
  EXPECT_EQ(submitter.counts().batch, 3U);
  // At most 8 blocks a wait; beside a page cache the queue waits for requests of its own too.
  EXPECT_GE(std::ranges::count(noted, 3U), 200 / 8);
}

TEST(TestBedCreation, ACpuThatIsNotThereIsRefused) {
  const ScratchDirectory directory;
  auto bed = TestBed::create({.directories = {directory.path()},
                              .size_bytes = 1 << 20,
                              .block_bytes = kBlockBytes,
                              .depth_max = 1,
                              .memory_bytes = kBlockBytes,
                              .cpus = {1023}});
  if (!bed.ok()) {
    EXPECT_EQ(bed.status().code(), Code::kInvalidArgument);  // the workers of the thread backend
  } else {
    EXPECT_EQ((*bed)->fill().code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(directory.names().empty());
}

}  // namespace
}  // namespace sluice::tools
