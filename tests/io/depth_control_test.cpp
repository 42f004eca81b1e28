#include "io/depth_control.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <random>
#include <vector>

#include "support/sim_world.hpp"

namespace sluice::io {
namespace {

constexpr std::uint32_t kWhole = 64;
constexpr std::uint64_t kPieceBytes = 1 << 20;

/// A drive that answers each request after a latency, and all of them no faster than a rate: the knee lies at
/// latency x rate / piece pieces in flight.
struct ModelDrive {
  double pieces_per_s = 4000;
  double latency_s = 0.002;
  double jitter = 0.2;  // of the latency
  double writes_cost = 1;
  double write_share = 0;

  double knee() const { return pieces_per_s * latency_s; }
};

/// A caller that always has work, or stops for a while after every burst, in front of a ModelDrive.
class Loop {
 public:
  explicit Loop(std::uint64_t seed) : random_(seed) {}

  /// Lets this many pieces finish.
  void run(std::uint64_t pieces) {
    for (std::uint64_t end = finished_ + pieces; finished_ < end;) {
      while (in_flight_.size() < control.depth()) start();
      finish();
    }
  }

  /// Bursts of `burst` pieces, nothing in flight between them.
  void run_bursts(int bursts, std::uint32_t burst) {
    for (int i = 0; i < bursts; ++i) {
      for (std::uint32_t left = burst; left > 0 || !in_flight_.empty();) {
        while (left > 0 && in_flight_.size() < control.depth()) {
          start();
          --left;
        }
        kept_full_ = left > 0;
        finish();
      }
    }
    kept_full_ = true;
  }

  double seconds() const { return now_s_; }

  DepthControl control{kWhole};
  ModelDrive drive;

 private:
  struct Sent {
    double due_s;
    bool write;
    bool operator<(const Sent& other) const { return due_s > other.due_s; }
  };

  double unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  void start() {
    const bool write = unit() < drive.write_share;
    free_s_ = std::max(free_s_, now_s_) + (write ? drive.writes_cost : 1) / drive.pieces_per_s;
    const double latency_s = drive.latency_s * (1 + drive.jitter * (unit() - 0.5));
    in_flight_.push({std::max(now_s_ + latency_s, free_s_), write});
  }

  void finish() {
    const Sent sent = in_flight_.top();
    in_flight_.pop();
    now_s_ = std::max(now_s_, sent.due_s);
    ++finished_;
    control.observe({.now_ns = static_cast<std::int64_t>(now_s_ * 1e9),
                     .pieces = 1,
                     .bytes_read = sent.write ? 0 : kPieceBytes,
                     .bytes_written = sent.write ? kPieceBytes : 0,
                     .kept_full = kept_full_});
    EXPECT_GE(control.depth(), DepthControl::kLeast);
    EXPECT_LE(control.depth(), kWhole);
  }

  std::mt19937_64 random_;
  std::priority_queue<Sent> in_flight_;
  double now_s_ = 0;
  double free_s_ = 0;  // the drive's channel
  std::uint64_t finished_ = 0;
  bool kept_full_ = true;
};

class DepthControlTest : public testing::Test {
 protected:
  /// Where the depth rests: the median of many moments, trials included.
  static std::uint32_t resting(Loop& loop) {
    std::vector<std::uint32_t> seen;
    for (int i = 0; i < 401; ++i) {
      loop.run(53);
      seen.push_back(loop.control.depth());
    }
    std::nth_element(seen.begin(), seen.begin() + 200, seen.end());
    return seen[200];
  }

  const std::uint64_t seed_ = sim::seed_or(20261130);
  testing::ScopedTrace trace_{__FILE__, __LINE__, "SLUICE_TEST_SEED=" + std::to_string(seed_)};
};

TEST_F(DepthControlTest, SettlesNearTheKneeOfTheDrive) {
  for (const double knee : {3.0, 8.0, 20.0, 40.0}) {
    Loop loop(seed_);
    loop.drive.latency_s = knee / loop.drive.pieces_per_s;
    loop.run(20'000);
    const std::uint32_t depth = resting(loop);
    EXPECT_GE(depth, knee * 0.9) << knee;
    EXPECT_LE(depth, std::max(knee * 1.6, knee + 2)) << knee;
  }
}

TEST_F(DepthControlTest, KeepsTheWholeDepthWhereItIsNeeded) {
  Loop loop(seed_);
  loop.drive.latency_s = 2.0 * kWhole / loop.drive.pieces_per_s;
  loop.run(20'000);
  EXPECT_EQ(resting(loop), kWhole);
}

TEST_F(DepthControlTest, CostsAFewPercentOfThroughputAtMost) {
  for (const double knee : {1.0, 4.0, 12.0, 30.0, 64.0, 200.0}) {
    for (const double jitter : {0.0, 0.5, 1.5}) {
      Loop loop(seed_);
      loop.drive.latency_s = knee / loop.drive.pieces_per_s;
      loop.drive.jitter = jitter;
      constexpr std::uint64_t kPieces = 60'000;
      loop.run(kPieces);
      const double whole_s =
          kPieces / loop.drive.pieces_per_s * std::max(1.0, knee / kWhole);  // with the whole depth in flight
      EXPECT_LE(loop.seconds(), whole_s * 1.04) << knee << " " << jitter;
    }
  }
}

TEST_F(DepthControlTest, ADriveThatBecomesSlowerGetsLessInFlight) {
  Loop loop(seed_);
  loop.drive.latency_s = 24 / loop.drive.pieces_per_s;
  loop.run(300'000);  // trials have become rare
  const std::uint32_t before = resting(loop);
  loop.drive.pieces_per_s /= 4;
  loop.run(20'000);
  const std::uint32_t after = resting(loop);
  EXPECT_GE(before, 22u);
  EXPECT_LE(after, 10u);
  EXPECT_GE(after, 5u);
}

TEST_F(DepthControlTest, ALatencySpikePassesAndTheDepthComesBack) {
  Loop loop(seed_);
  loop.drive.latency_s = 12 / loop.drive.pieces_per_s;
  loop.run(20'000);
  const std::uint32_t before = resting(loop);
  loop.drive.latency_s *= 10;
  loop.run(6000);
  EXPECT_EQ(resting(loop), kWhole);  // 120 would be wanted
  loop.drive.latency_s /= 10;
  loop.run(20'000);
  const std::uint32_t after = resting(loop);
  EXPECT_NEAR(after, before, 5);
}

TEST_F(DepthControlTest, ShortBurstsTeachNothingAndKeepTheWholeDepth) {
  Loop loop(seed_);
  loop.drive.latency_s = 4 / loop.drive.pieces_per_s;
  std::uint32_t whole = 0;
  for (int i = 0; i < 200; ++i) {
    loop.run_bursts(3, 90);
    whole += loop.control.depth() == kWhole ? 1 : 0;
  }
  EXPECT_GE(whole, 190u);
}

TEST_F(DepthControlTest, AMixThatChangesIsNotTakenForADepthThatHelps) {
  Loop loop(seed_);
  loop.drive.latency_s = 30 / loop.drive.pieces_per_s;
  loop.drive.writes_cost = 4;
  std::mt19937_64 random(seed_);
  for (int phase = 0; phase < 200; ++phase) {
    loop.drive.write_share = static_cast<double>(random() % 2);
    loop.run(100 + random() % 900);
  }
  loop.drive.write_share = 0;
  loop.run(20'000);
  EXPECT_GE(resting(loop), 27u);
}

TEST_F(DepthControlTest, RunsOfAnotherMixProveNothing) {
  Loop loop(seed_);
  loop.drive.latency_s = 30 / loop.drive.pieces_per_s;
  loop.drive.writes_cost = 4;
  int whole = 0;
  for (int piece = 0; piece < 50'000; ++piece) {
    whole += loop.control.depth() == kWhole ? 1 : 0;
    loop.drive.write_share = loop.control.depth() == kWhole ? 1 : 0;  // fewer in flight look quicker
    loop.run(1);
  }
  EXPECT_GT(whole, 40'000);
}

TEST_F(DepthControlTest, ADepthOfOneOrTwoStays) {
  for (const std::uint32_t most : {1u, 2u}) {
    DepthControl control(most);
    for (int i = 0; i < 1000; ++i)
      control.observe({.now_ns = i * 1000, .pieces = 1, .bytes_read = 4096, .kept_full = true});
    EXPECT_EQ(control.depth(), most);
  }
}

}  // namespace
}  // namespace sluice::io
