#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/drive_settings.hpp"
#include "sluice/status.hpp"
#include "tools/nvme/drive_test.hpp"

namespace sluice::tools {

/// A setting that was tried on a drive, and what it gave.
struct TunePoint {
  std::uint64_t block_bytes = 0;
  io::DriveSettings settings;
  double gib_per_s = 0;  ///< the median where it was measured several times
};

struct TuneOptions {
  DriveTestOptions test;  ///< its block, piece and depth are not looked at; its seconds are those of one try
  std::vector<std::uint64_t> blocks_bytes;     ///< to try
  std::vector<std::uint32_t> depths;           ///< to try
  std::uint64_t memory_bytes_max = 512 << 20;  ///< of blocks in flight; what needs more is left out
};

/// What was found out about one drive.
struct DriveTuning {
  std::string directory;
  std::vector<TunePoint> points;     ///< in the order of trying
  std::vector<TunePoint> finalists;  ///< tried again by turns, fastest first
  TunePoint chosen;
  // Of the chosen one. Units: bytes a second.
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double mixed_bytes_per_s = 0;
};

/// What is looked at while it is tried: the drive's directory and its points so far.
using TuneProgress = std::function<void(const std::string& directory, const std::vector<TunePoint>&)>;

/// Tries every block, depth and cut on each drive alone, all on one file that is written once; then tries the fastest
/// again by turns, so that no lucky moment chooses.
/// Errors: kInvalidArgument where the size has room for no point; otherwise as test_drives().
Result<std::vector<DriveTuning>> tune_drives(const TuneOptions& options, const Progress& progress,
                                             const TuneProgress& tried);

/// The points worth another try: of each depth the fastest, where it is near the fastest of all.
std::vector<TunePoint> finalists_of(const std::vector<TunePoint>& points);

/// Of points that give nearly the most, the one with the least in flight. Requires: not empty.
TunePoint choose(const std::vector<TunePoint>& points);

}  // namespace sluice::tools
