#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <set>

#include "engine/training.hpp"
#include "io/uring_backend.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

using sim::PlainModel;
using sim::Training;

enum class HostBudget : std::uint8_t { kLeast, kHalf, kUnlimited };
enum class DeviceBudget : std::uint8_t { kLeast, kUnlimited };

/// Everything that says where state lives and who moves it, and must not change it.
struct Placement {
  HostBudget host = HostBudget::kLeast;
  IoBackend backend = IoBackend::kThreads;
  std::uint32_t threads = 0;
  std::uint32_t chunk_elements = 0;
  Undo undo = Undo::kOn;
  DeviceBudget device = DeviceBudget::kLeast;
  std::uint32_t drives = 1;

  /// The settings as numbers, to tell pairs of them apart.
  std::array<std::uint32_t, 7> settings() const {
    return {static_cast<std::uint32_t>(host), static_cast<std::uint32_t>(backend), threads, chunk_elements,
            static_cast<std::uint32_t>(undo), static_cast<std::uint32_t>(device),  drives};
  }
};

std::string describe(const Placement& placement) {
  constexpr std::array<const char*, 3> kHost{"least", "half", "unlimited"};
  return fmt::format("host {}, {}, threads {}, chunk {}, undo {}, device {}, {} drives",
                     kHost[static_cast<std::size_t>(placement.host)],
                     placement.backend == IoBackend::kUring ? "io_uring" : "threads", placement.threads,
                     placement.chunk_elements, placement.undo == Undo::kOn ? "on" : "off",
                     placement.device == DeviceBudget::kLeast ? "least" : "unlimited", placement.drives);
}

std::vector<Placement> whole_grid() {
  std::vector<Placement> grid;
  for (const HostBudget host : {HostBudget::kLeast, HostBudget::kHalf, HostBudget::kUnlimited})
    for (const IoBackend backend : {IoBackend::kUring, IoBackend::kThreads})
      for (const std::uint32_t threads : {1U, 0U})
        for (const std::uint32_t chunk_elements : {16U << 10, 64U << 10, 1U << 20})
          for (const Undo undo : {Undo::kOn, Undo::kOff})
            for (const DeviceBudget device : {DeviceBudget::kLeast, DeviceBudget::kUnlimited})
              for (const std::uint32_t drives : {1U, 2U})
                grid.push_back({host, backend, threads, chunk_elements, undo, device, drives});
  return grid;
}

/// A few placements in which every two settings meet in every combination, taken greedily.
std::vector<Placement> covering_pairs(const std::vector<Placement>& grid) {
  using Pair = std::array<std::uint32_t, 4>;
  const auto pairs_of = [](const Placement& placement) {
    std::set<Pair> pairs;
    const auto settings = placement.settings();
    for (std::uint32_t a = 0; a < settings.size(); ++a)
      for (std::uint32_t b = a + 1; b < settings.size(); ++b) pairs.insert({a, settings[a], b, settings[b]});
    return pairs;
  };
  std::set<Pair> uncovered;
  for (const Placement& placement : grid) uncovered.merge(pairs_of(placement));
  std::vector<Placement> chosen;
  while (!uncovered.empty()) {
    const Placement* best = nullptr;
    std::size_t most = 0;
    for (const Placement& placement : grid) {
      std::size_t covers = 0;
      for (const Pair& pair : pairs_of(placement)) covers += uncovered.count(pair);
      if (covers > most) {
        most = covers;
        best = &placement;
      }
    }
    for (const Pair& pair : pairs_of(*best)) uncovered.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

/// 450 000 elements of every kind; at 16 Ki many chunks, at 1 Mi one a class.
PlainModel model_of_every_kind() {
  PlainModel model;
  const AdamW rule{.lr = 3e-3, .weight_decay = 0.1};
  model.add("embedding", 150'000, Policy::kBf16Split, GradientStorage::kFp32, rule);
  model.add("norm", 301, Policy::kFp32, GradientStorage::kFp32, rule);
  model.add("up", 100'000, Policy::kBf16Split, GradientStorage::kFp32, rule);
  model.add("head", 70'000, Policy::kFp32, GradientStorage::kFp32, rule);
  model.add("once", 90'000, Policy::kBf16Split, GradientStorage::kBf16Once, rule);
  model.add("frozen", 40'000, Policy::kFrozen, GradientStorage::kFp32, rule);
  return model;
}

/// Returns: "", or what went wrong or differs from plain arrays.
std::string train(const Placement& placement) {
  const std::array<sim::TemporaryDirectory, 2> drives;
  Training training{.model = model_of_every_kind(), .engine = {}, .parameters = {}, .report = {}};
  EngineOptions options;
  for (std::uint32_t drive = 0; drive < placement.drives; ++drive)
    options.directories.push_back(drives[drive].path());
  options.chunk_elements = placement.chunk_elements;
  options.keep_commits = 0;
  options.threads = placement.threads;
  options.undo = placement.undo;
  options.io.backend = placement.backend;
  options.host_budget_bytes = kUnlimited;
  options.device_budget_bytes = kUnlimited;
  if (placement.device == DeviceBudget::kLeast)
    options.device_budget_bytes = options.max_fetch_bytes = sim::largest_device_bytes(training.model);
  if (placement.host != HostBudget::kUnlimited) {
    if (const Status opened = training.open(options); !opened.ok()) return opened.to_string();
    const std::uint64_t least = training.report.least_host_bytes;
    options.host_budget_bytes =
        placement.host == HostBudget::kLeast ? least : (least + training.report.host_bytes) / 2;
  }
  if (const Status opened = training.open(options); !opened.ok()) return opened.to_string();
  if (training.report.host_bytes > options.host_budget_bytes ||
      training.report.device_bytes > options.device_budget_bytes)
    return "a budget was exceeded";
  return training.run(3, {.max_norm = 0.5, .loss_scale = 1024, .gradient_divisor = 2, .micro_batches = 2});
}

void expect_equal_everywhere(const std::vector<Placement>& placements) {
  const bool ring = io::open_uring_backend({.depth = 1}).ok();
  for (const Placement& placement : placements) {
    if (placement.backend == IoBackend::kUring && !ring) continue;
    EXPECT_EQ(train(placement), "") << describe(placement);
  }
  if (!ring) GTEST_SKIP() << "io_uring is not allowed here: its placements were left out";
}

TEST(Placement, OfEveryTwoSettingsTogetherChangesNoBit) {
  const std::vector<Placement> placements = covering_pairs(whole_grid());
  EXPECT_LT(placements.size(), 16U);
  expect_equal_everywhere(placements);
}

TEST(Placement, InTheWholeGridChangesNoBit) {
  const char* const wanted = std::getenv("SLUICE_LONG_TESTS");
  if (wanted == nullptr || std::string(wanted) != "1") GTEST_SKIP() << "minutes: set SLUICE_LONG_TESTS=1";
  expect_equal_everywhere(whole_grid());
}

}  // namespace
}  // namespace sluice
