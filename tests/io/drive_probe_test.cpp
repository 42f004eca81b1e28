#include "io/drive_probe.hpp"

#include <gmock/gmock.h>

#include <cerrno>

#include <memory>
#include <string>
#include <utility>

#include "queue_fixture.hpp"
#include "support/paced_drives.hpp"

namespace sluice::io {
namespace {

using testing::HasSubstr;

constexpr ProbeOptions kShort{.file_bytes = 64 << 20, .seconds_max = 0.2};

/// A drive whose rates and latency are known, on a manual clock.
class PacedProbeTest : public testing::Test {
 protected:
  Result<DriveProfile> probe(sim::Pace pace, ProbeOptions options = kShort) {
    drives_.add(temporary_.path(), pace);
    const auto delay_ns = [this](const Request& request, std::int64_t now_ns) {
      return drives_.delay_ns(request, now_ns);
    };
    sim::SimBackend backend(world_, {.depth = 64, .delay_ns = delay_ns});
    return probe_drive(backend, directory_, {memory_.data(), memory_.size()}, options);
  }

  sim::TemporaryDirectory temporary_{sim::Beneath::kMemory};
  Directory directory_ = Directory::open(temporary_.path(), Access::kReadWrite).value();
  sim::SimWorld world_{20261130};
  sim::PacedDrives drives_;
  Buffer memory_{64 << 20};
};

TEST_F(PacedProbeTest, FindsTheRates) {
  const Result<DriveProfile> profile =
      probe({.read_bytes_per_s = 2e9, .write_bytes_per_s = 1e9, .latency_ns = 100'000});
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_NEAR(profile->read_bytes_per_s, 2e9, 0.03 * 2e9);
  EXPECT_NEAR(profile->write_bytes_per_s, 1e9, 0.03 * 1e9);
  EXPECT_NEAR(profile->mixed_bytes_per_s, 2 / (1 / 2e9 + 1 / 1e9), 0.04e9);
  EXPECT_EQ(profile->measured_by, "probe");
}

TEST_F(PacedProbeTest, FindsTheFewestBytesInFlightThatCoverTheLatency) {
  // 6 ms at 1 GB/s: 6 MB and a piece must be in flight.
  const Result<DriveProfile> profile = probe({.latency_ns = 6'000'000});
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_EQ(profile->settings, (DriveSettings{.piece_bytes = 256 << 10, .depth = 32}));
}

TEST_F(PacedProbeTest, ADriveThatAnswersAtOnceNeedsLittleInFlight) {
  const Result<DriveProfile> profile = probe({}, {.file_bytes = 64 << 20, .seconds_max = 0.5});
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_EQ(profile->settings, (DriveSettings{.piece_bytes = 256 << 10, .depth = 4}));
}

TEST_F(PacedProbeTest, ASlowDriveIsNotMeasuredForLong) {
  const Result<DriveProfile> profile = probe({.read_bytes_per_s = 2e7, .write_bytes_per_s = 2e7});
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_NEAR(profile->read_bytes_per_s, 2e7, 0.1 * 2e7);
  const double file_seconds = 2 * static_cast<double>(kShort.file_bytes) / 2e7;
  EXPECT_LT(static_cast<double>(world_.now_ns()) * 1e-9, file_seconds + 30 * kShort.seconds_max);
}

TEST_F(PacedProbeTest, LeavesNothingBehind) {
  ASSERT_TRUE(probe({}).ok());
  EXPECT_TRUE(directory_.names().value().empty());
}

TEST_F(PacedProbeTest, ADriveThatFailsIsNamed) {
  sim::SimBackend backend(world_, {});
  backend.faults().add({.op = Op::kWrite, .error = EIO, .skip = 40});
  const Result<DriveProfile> profile =
      probe_drive(backend, directory_, {memory_.data(), memory_.size()}, kShort);
  EXPECT_EQ(profile.status().code(), Code::kIoError);
  EXPECT_THAT(profile.status().message(), HasSubstr(temporary_.path()));
  EXPECT_TRUE(directory_.names().value().empty());
}

TEST_F(PacedProbeTest, TooLittleMemoryIsRefused) {
  sim::SimBackend backend(world_, {});
  EXPECT_EQ(probe_drive(backend, directory_, {memory_.data(), 1 << 20}, kShort).status().code(),
            Code::kInvalidArgument);
}

TEST(DriveProbeTest, MeasuresTheDriveBeneath) {
  const sim::TemporaryDirectory temporary;
  const Directory directory = Directory::open(temporary.path(), Access::kReadWrite).value();
  Result<SelectedBackend> backend = open_backend({.queue_depth = kProbeDepth});
  ASSERT_TRUE(backend.ok()) << backend.status().to_string();
  Buffer memory(32 << 20);
  const Result<DriveProfile> profile =
      probe_drive(*backend->backend, directory, {memory.data(), memory.size()},
                  {.file_bytes = 32 << 20, .seconds_max = 0.1});
  if (profile.status().code() == Code::kFailedPrecondition) GTEST_SKIP() << profile.status().message();
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_GT(profile->mixed_bytes_per_s, 0);
  EXPECT_GT(profile->read_bytes_per_s, 0);
  EXPECT_GT(profile->write_bytes_per_s, 0);
  ASSERT_TRUE(save_profile(directory, *profile).ok());
  EXPECT_EQ(load_profile(directory).value()->settings, profile->settings);
}

}  // namespace
}  // namespace sluice::io
