#include "tools/nvme/drive_tune.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr double kNearlyTheMost = 0.98;
constexpr double kWorthAnotherTry = 0.93;
constexpr std::size_t kFinalistsMost = 6;
constexpr std::size_t kFinalRounds = 5;
// A block above this is tried whole and cut into pieces of these sizes.
constexpr std::uint64_t kCutAboveBytes = 1 << 20;
constexpr std::uint32_t kPiecesBytes[] = {256 << 10, 1 << 20};
constexpr std::uint64_t kFillBlockBytes = 1 << 20;

DriveTestOptions point_options(const TuneOptions& options, const TunePoint& point) {
  DriveTestOptions one = options.test;
  one.block_bytes = point.block_bytes;
  one.piece_bytes = point.settings.piece_bytes;
  one.depth = point.settings.depth;
  return one;
}

std::vector<TunePoint> grid_of(const TuneOptions& options) {
  std::vector<TunePoint> points;
  for (const std::uint64_t block_bytes : options.blocks_bytes) {
    std::vector<std::uint32_t> pieces = {static_cast<std::uint32_t>(block_bytes)};
    if (block_bytes > kCutAboveBytes)
      pieces.insert(pieces.end(), std::begin(kPiecesBytes), std::end(kPiecesBytes));
    for (const std::uint32_t piece_bytes : pieces) {
      for (const std::uint32_t depth : options.depths)
        points.push_back(
            {.block_bytes = block_bytes, .settings = {.piece_bytes = piece_bytes, .depth = depth}});
    }
  }
  return points;
}

class Tuner {
 public:
  Tuner(const TuneOptions& options, TestBed& bed) : options_(options), bed_(bed) {}

  /// Units: GiB/s.
  Result<double> measure(std::size_t drive, const TunePoint& point, peers::Mix mix) {
    DriveRun run{.mix = mix,
                 .pattern = options_.test.pattern,
                 .block_bytes = point.block_bytes,
                 .drives = {options_.test.directories.size(), {.piece_bytes = 1, .depth = 0}}};
    run.drives[drive] = point.settings;
    if (options_.test.seconds) run.seconds = *options_.test.seconds;
    if (options_.test.bytes) run.bytes_max = *options_.test.bytes;
    SLUICE_ASSIGN_OR_RETURN(const RunResult result, bed_.run(run));
    // To the last block's end: many large blocks in flight end after a short time is over.
    const std::uint64_t bytes = result.counts.bytes_read + result.counts.bytes_written;
    return static_cast<double>(bytes) / 0x1p30 / result.seconds;
  }

  Result<DriveTuning> tune(std::size_t drive, const std::vector<TunePoint>& grid, const TuneProgress& tried) {
    DriveTuning tuning;
    tuning.directory = options_.test.directories[drive];
    // What is tried first must not pay for the drive's waking up.
    SLUICE_RETURN_IF_ERROR(measure(drive, grid.front(), options_.test.mix).status());
    for (TunePoint point : grid) {
      SLUICE_ASSIGN_OR_RETURN(point.gib_per_s, measure(drive, point, options_.test.mix));
      tuning.points.push_back(point);
      tried(tuning.directory, tuning.points);
    }
    tuning.finalists = finalists_of(tuning.points);
    SLUICE_RETURN_IF_ERROR(play_final(drive, tuning.finalists));
    tuning.chosen = choose(tuning.finalists);
    for (const auto& [mix, rate] : {std::pair{peers::Mix::kRead, &tuning.read_bytes_per_s},
                                    std::pair{peers::Mix::kWrite, &tuning.write_bytes_per_s},
                                    std::pair{peers::Mix::kMixed, &tuning.mixed_bytes_per_s}}) {
      std::vector<double> rounds;
      for (std::size_t round = 0; round < kFinalRounds; ++round) {
        SLUICE_ASSIGN_OR_RETURN(const double gib_per_s, measure(drive, tuning.chosen, mix));
        rounds.push_back(gib_per_s * 0x1p30);
      }
      *rate = median(rounds);
    }
    return tuning;
  }

 private:
  Status play_final(std::size_t drive, std::vector<TunePoint>& finalists) {
    std::vector<std::vector<double>> rounds(finalists.size());
    for (std::size_t round = 0; round < kFinalRounds; ++round) {
      for (std::size_t turn = 0; turn < finalists.size(); ++turn) {
        const std::size_t who = (turn + round) % finalists.size();
        SLUICE_ASSIGN_OR_RETURN(const double gib_per_s, measure(drive, finalists[who], options_.test.mix));
        rounds[who].push_back(gib_per_s);
      }
    }
    for (std::size_t i = 0; i < finalists.size(); ++i) finalists[i].gib_per_s = median(rounds[i]);
    std::stable_sort(finalists.begin(), finalists.end(),
                     [](const TunePoint& a, const TunePoint& b) { return a.gib_per_s > b.gib_per_s; });
    return {};
  }

  const TuneOptions& options_;
  TestBed& bed_;
};

}  // namespace

std::vector<TunePoint> finalists_of(const std::vector<TunePoint>& points) {
  std::map<std::uint32_t, TunePoint> best_of_depth;
  double most = 0;
  for (const TunePoint& point : points) {
    TunePoint& best = best_of_depth[point.settings.depth];
    if (point.gib_per_s > best.gib_per_s) best = point;
    most = std::max(most, point.gib_per_s);
  }
  std::vector<TunePoint> finalists;
  for (const auto& [depth, point] : best_of_depth) {
    if (point.gib_per_s >= kWorthAnotherTry * most) finalists.push_back(point);
  }
  std::stable_sort(finalists.begin(), finalists.end(),
                   [](const TunePoint& a, const TunePoint& b) { return a.gib_per_s > b.gib_per_s; });
  if (finalists.size() > kFinalistsMost) finalists.resize(kFinalistsMost);
  return finalists;
}

TunePoint choose(const std::vector<TunePoint>& points) {
  double most = 0;
  for (const TunePoint& point : points) most = std::max(most, point.gib_per_s);
  const TunePoint* chosen = nullptr;
  for (const TunePoint& point : points) {
    if (point.gib_per_s < kNearlyTheMost * most) continue;
    if (chosen == nullptr || point.settings.depth < chosen->settings.depth ||
        (point.settings.depth == chosen->settings.depth && point.gib_per_s > chosen->gib_per_s)) {
      chosen = &point;
    }
  }
  return *chosen;
}

Result<std::vector<DriveTuning>> tune_drives(const TuneOptions& options, const Progress& progress,
                                             const TuneProgress& tried) {
  std::vector<TunePoint> grid;
  TestBedOptions bed_needs;
  Status too_small;
  for (const TunePoint& point : grid_of(options)) {
    const DriveTestOptions one = point_options(options, point);
    // The rates of the chosen one are also measured mixed, which needs the most room.
    DriveTestOptions mixed = one;
    mixed.mix = peers::Mix::kMixed;
    if (const Status status = validate(mixed); !status.ok()) {
      too_small = status;
      continue;
    }
    const TestBedOptions needs = bed_options(one);
    if (needs.memory_bytes * needs.threads > options.memory_bytes_max) continue;
    if (grid.empty()) bed_needs = needs;
    bed_needs.memory_bytes = std::max(bed_needs.memory_bytes, needs.memory_bytes);
    bed_needs.depth_max = std::max(bed_needs.depth_max, needs.depth_max);
    grid.push_back(point);
  }
  if (grid.empty()) {
    if (!too_small.ok()) return too_small;
    return refuse(
        "--block", "too large at each --depth",
        fmt::format("blocks in flight of at most {} with --tune", size_text(options.memory_bytes_max)));
  }
  bed_needs.block_bytes =
      std::min<std::uint64_t>({kFillBlockBytes, bed_needs.memory_bytes / options.test.directories.size(),
                               options.test.size_bytes / options.test.directories.size()}) /
      4096 * 4096;
  bed_needs.verify = Verify::kNo;
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<TestBed> bed, TestBed::create(bed_needs));
  if (const TestBedUse use = bed->in_use(); !use.direct) {
    return {Code::kFailedPrecondition,
            fmt::format("--tune would measure the page cache: {}", fmt::join(use.fallbacks, "; "))};
  }
  progress("writing " + size_text(bed->file_bytes() * options.test.directories.size()));
  SLUICE_RETURN_IF_ERROR(bed->fill());
  Tuner tuner(options, *bed);
  std::vector<DriveTuning> all;
  for (std::size_t drive = 0; drive < options.test.directories.size(); ++drive) {
    progress("trying blocks, depths and pieces on " + options.test.directories[drive]);
    SLUICE_ASSIGN_OR_RETURN(DriveTuning tuning, tuner.tune(drive, grid, tried));
    all.push_back(std::move(tuning));
  }
  return all;
}

}  // namespace sluice::tools
