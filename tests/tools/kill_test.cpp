#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>

#include "run_command.hpp"
#include "support/sim_world.hpp"
#include "trainer/text.hpp"

namespace sluice::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kAttemptsMax = 40;  // then a run is left alone

/// What one run of the trainer is started with beside its model.
struct Setting {
  std::uint64_t commit_every = 1;
  std::uint64_t keep_commits = 1;
  const char* undo = "on";
  const char* host_memory = "least";
};

/// Trains a model of one layer for twelve steps, again and again, each time killed after a while that a seed decides,
/// until it comes to its end.
class Killed : public ::testing::Test {
 protected:
  Killed() {
    std::ofstream text(text_);
    for (std::uint64_t i = 0; i < 12'000; ++i)
      text << static_cast<char>('a' + trainer::random_below(26, 1, i));
  }

  std::vector<std::string> arguments(const std::string& directory, const Setting& setting) const {
    return {"train",
            "--json",
            "--resume",
            "--text",
            text_,
            "--dir",
            directory,
            "--steps",
            "12",
            "--layers",
            "1",
            "--width",
            "64",
            "--heads",
            "2",
            "--context",
            "16",
            "--batch",
            "1",
            "--micro-batches",
            "1",
            "--warmup",
            "2",
            "--threads",
            "1",
            "--sample",
            "0",
            "--validate",
            "0",
            "--gemm-threads",
            "1",
            "--chunk-elements",
            "16384",
            "--undo",
            setting.undo,
            "--host-memory",
            setting.host_memory,
            "--commit-every",
            std::to_string(setting.commit_every),
            "--keep-commits",
            std::to_string(setting.keep_commits)};
  }

  static std::vector<std::string> fingerprint(const nlohmann::json& report) {
    return {report.at("state_xxh3"), report.at("weights_xxh3"), report.at("user_bytes_xxh3")};
  }

  // Of a run that nobody kills, and how long it takes.
  void run_undisturbed() {
    const ScratchDirectory directory;
    const Clock::time_point start = Clock::now();
    const CommandResult result = run_command(arguments(directory.path(), {}));
    whole_ = Clock::now() - start;
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    undisturbed_ = result.json();
  }

  void run_killed(const Setting& setting) {
    const ScratchDirectory directory;
    for (std::uint64_t attempt = 0;; ++attempt) {
      std::optional<Clock::duration> life;
      if (attempt < kAttemptsMax) life = whole_ * static_cast<long>(random_() % 1024) / 1024;
      const CommandResult result = run_command(arguments(directory.path(), setting), {}, life);
      const bool resumed = result.errors.find("goes on after step") != std::string::npos;
      if (result.exit_code == -SIGKILL) {
        ++kills_;
        kills_after_resume_ += resumed ? 1 : 0;
        continue;
      }
      ASSERT_EQ(result.exit_code, 0) << "attempt " << attempt << ": " << result.errors;
      const nlohmann::json report = result.json();
      EXPECT_EQ(fingerprint(report), fingerprint(undisturbed_)) << result.errors;
      EXPECT_EQ(report.at("losses"), undisturbed_.at("losses"));
      EXPECT_EQ(report.at("resumed_from_step").is_null(), !resumed);
      break;
    }
    const CommandResult verified = run_command({"verify", "--dir", directory.path()});
    EXPECT_EQ(verified.exit_code, 0) << verified.errors;
  }

  const ScratchDirectory folder_;
  const std::string text_ = folder_.path() + "/text";
  const std::uint64_t seed_ = sim::seed_or(std::random_device{}());
  std::mt19937_64 random_{seed_};
  Clock::duration whole_{};
  nlohmann::json undisturbed_;
  std::uint64_t kills_ = 0;
  std::uint64_t kills_after_resume_ = 0;
};

TEST_F(Killed, RunEndsAsAnUndisturbedOneWhereverItWasKilled) {
  const int rounds = std::getenv("SLUICE_LONG_TESTS") != nullptr ? 200 : 20;
  std::cout << "seed " << seed_ << '\n';
  run_undisturbed();
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed_ << ", round " << round);
    run_killed({.commit_every = round % 2 == 0 ? 1U : 3U,
                .keep_commits = 1 + random_() % 3,
                .undo = random_() % 3 == 0 ? "off" : "on",
                .host_memory = random_() % 3 == 0 ? "unlimited" : "least"});
  }
  std::cout << kills_ << " kills, " << kills_after_resume_ << " of them after a commit\n";
  EXPECT_GT(kills_, static_cast<std::uint64_t>(rounds) / 4) << "too few to have shown anything";
}

}  // namespace
}  // namespace sluice::tools
