#include <fmt/format.h>
#include <filesystem>

#include <string>
#include <vector>

#include "engine/committing_engine.hpp"
#include "io/drive_profile.hpp"
#include "support/paced_drives.hpp"

namespace sluice::sim {
namespace {

using testing::HasSubstr;

/// A store over several simulated drives of known pace, out of core.
class SeveralDrivesTest : public CommitTest {
 protected:
  static constexpr std::uint64_t kChunks = 40;

  void use_drives(std::vector<Pace> paces) {
    options.directories.clear();
    for (std::size_t drive = 0; drive < paces.size(); ++drive) {
      options.directories.push_back(fmt::format("{}/drive-{}", house.directory.path(), drive));
      std::filesystem::create_directory(options.directories.back());
      drives.add(options.directories.back(), paces[drive]);
    }
    house.drive_options.delay_ns = [this](const io::Request& request, std::int64_t now_ns) {
      return drives.delay_ns(request, now_ns);
    };
  }
  void measure(std::size_t drive, double bytes_per_s) {
    const io::DriveProfile profile{.settings = {.piece_bytes = 64 << 10, .depth = 8},
                                   .mixed_bytes_per_s = bytes_per_s,
                                   .measured_by = "probe",
                                   .measured_on = "2026-11-30"};
    const auto directory = io::Directory::open(options.directories[drive], io::Access::kReadWrite);
    ASSERT_TRUE(io::save_profile(*directory, profile).ok());
  }

  void clear_drives() {
    engine.reset();
    for (const std::string& directory : options.directories) {
      std::filesystem::remove_all(directory);
      std::filesystem::create_directory(directory);
    }
  }

  void open_many() {
    make();
    many = add("many", {dim(kChunks * kChunk)}, {.name = "trained", .optimizer = kShowsGradient});
    report = seal();
  }
  void open_many_out_of_core() {
    options.host_budget_bytes = kUnlimited;
    open_many();
    options.host_budget_bytes = report.least_host_bytes + 8 * kChunk * 12;
    ASSERT_THAT(engine->close(), IsOk());
    open_many();
    ASSERT_EQ(report.resident_chunks, 0U);
  }
  void train_many(int steps) {
    for (int i = 0; i < steps; ++i) train(many, Values(kChunks * kChunk, static_cast<float>(i + 1)));
  }
  void forget_bytes() {
    for (std::size_t drive = 0; drive < options.directories.size(); ++drive)
      drives[drive].bytes_read = drives[drive].bytes_written = 0;
  }

  PacedDrives drives;
  ParameterId many;
};

TEST_F(SeveralDrivesTest, RecordsAreSpreadByWhatDrivesWereMeasuredToDo) {
  use_drives({{.read_bytes_per_s = 3e9, .write_bytes_per_s = 3e9}, {}});
  measure(0, 3e9);
  measure(1, 1e9);
  open_many_out_of_core();
  forget_bytes();
  train_many(4);
  const auto first = static_cast<double>(drives[0].bytes_written),
             second = static_cast<double>(drives[1].bytes_written);
  EXPECT_NEAR(first / (first + second), 0.75, 0.05);
  const Stats stats = engine->stats();
  ASSERT_EQ(stats.drives.size(), 2U);
  EXPECT_EQ(stats.drives[0].source, "probe 2026-11-30");
  EXPECT_EQ(stats.drives[1].depth, 8U);
}

TEST_F(SeveralDrivesTest, ADriveThatSlowsDownGetsFewerRecords) {
  use_drives({{}, {}});
  open_many_out_of_core();
  train_many(2);
  forget_bytes();
  train_many(4);
  const std::uint64_t usual = drives[1].bytes_written;
  EXPECT_NEAR(static_cast<double>(usual), static_cast<double>(drives[0].bytes_written),
              0.1 * static_cast<double>(usual));

  drives[1].pace = {.read_bytes_per_s = 1e8, .write_bytes_per_s = 1e8};
  train_many(2);
  forget_bytes();
  train_many(4);
  EXPECT_LT(static_cast<double>(drives[1].bytes_written), 0.92 * static_cast<double>(usual));
  EXPECT_GT(drives[0].bytes_written, usual);
}

TEST_F(SeveralDrivesTest, WhereRecordsWentDoesNotShowInTheState) {
  use_drives({{}, {.read_bytes_per_s = 1e8, .write_bytes_per_s = 1e8}, {}});
  open_many_out_of_core();
  train_many(3);
  commit("moved");
  train_many(1);
  commit("again");
  const auto on_three = state(many);
  ASSERT_THAT(engine->close(), IsOk());

  open_many();
  ASSERT_TRUE(report.recovered);
  EXPECT_FALSE(report.recovered->rewritten);
  EXPECT_EQ(report.recovered->user_bytes, bytes("again"));
  EXPECT_EQ(state(many), on_three);
  ASSERT_THAT(engine->close(), IsOk());
  engine.reset();

  options.directories = {options.directories[0]};
  options.existing = OnExisting::kRecover;
  options.recover_directories = {house.directory.path() + "/drive-1", house.directory.path() + "/drive-2"};
  open_many();
  ASSERT_TRUE(report.recovered);
  EXPECT_TRUE(report.recovered->rewritten);
  EXPECT_EQ(state(many), on_three);
}

TEST_F(SeveralDrivesTest, ADriveThatFailsIsNamed) {
  use_drives({{}, {}});
  open_many_out_of_core();
  train_many(1);
  house.backend->faults().add({.op = io::Op::kWrite, .error = EIO, .skip = 5, .count = 1});
  Pass pass = begin();
  give(pass, many, Values(kChunks * kChunk, 1));
  const Status failed = pass.step().status();
  EXPECT_EQ(failed.code(), Code::kIoError) << failed.to_string();
  EXPECT_THAT(failed.message(), HasSubstr("/drive-"));
  EXPECT_THAT(failed.message(), HasSubstr("'many'"));
}

TEST_F(SeveralDrivesTest, SparesThatTheBudgetHasNoRoomForAreLeftOut) {
  use_drives({{}, {}});
  open_many_out_of_core();
  const std::uint64_t with_spares = report.nvme_bytes;
  ASSERT_THAT(engine->close(), IsOk());
  clear_drives();
  options.nvme_budget_bytes = with_spares - 1;
  open_many();
  EXPECT_LT(report.nvme_bytes, with_spares);
  train_many(2);
}

TEST_F(SeveralDrivesTest, ADriveMayGetNoneOfTheSpilledGradients) {
  use_drives({{}, {}});
  measure(0, 1e6);
  measure(1, 3e9);
  open_many();
  ASSERT_THAT(engine->close(), IsOk());
  options.host_budget_bytes = report.least_host_bytes;
  open_many();
  ASSERT_GT(report.spilled_gradient_bytes, 0U);
  train_many(2);
  EXPECT_GT(engine->stats().gradient_bytes_read, 0U);
}

TEST_F(SeveralDrivesTest, TwoDrivesHaveEachTheirDepth) {
  use_drives({{}, {}});
  options.io.queue_depth = 12;
  std::uint32_t asked = 0;
  house.on_open_backend = [&](const io::BackendOptions& backend) { asked = backend.queue_depth; };
  open_many_out_of_core();
  EXPECT_EQ(asked, 24U + io::Queue::kOwnRequests);
}

}  // namespace
}  // namespace sluice::sim
