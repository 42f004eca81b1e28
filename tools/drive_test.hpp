#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/open_backend.hpp"
#include "sluice/status.hpp"
#include "tools/latency_histogram.hpp"

namespace sluice::tools {

enum class DriveOp : std::uint8_t {
  kRead,
  kWrite,
  kMixed,  ///< one read for one write
};

enum class Verify : std::uint8_t { kNo, kYes };

struct DriveTestOptions {
  std::vector<std::string> directories;  ///< one a drive
  DriveOp op = DriveOp::kRead;
  std::uint64_t size_bytes = 0;   ///< of all files together
  std::uint64_t block_bytes = 0;  ///< of one request
  std::uint32_t depth = 0;        ///< requests in flight on each drive
  double seconds = 0;
  io::BackendKind backend = io::BackendKind::kAuto;
  Verify verify = Verify::kNo;
};

struct DriveTestReport {
  double gib_per_s = 0;
  double gib_per_s_min = 0;  ///< of the slowest tenth of the time
  double cpu_seconds_per_gib = 0;
  LatencyHistogram latency;
  std::string backend;
  bool direct = false;  ///< on every drive
  bool registered_buffers = false;
  bool verified = false;
  std::string buffer_pages;
  std::vector<std::string> fallbacks;  ///< what was hoped for and is not in use, with the reason
};

/// Writes a file of real data in each directory, keeps `depth` requests in flight on each for `seconds`, in
/// ascending order of offsets, and measures. The files have no name while they are in use, so nothing stays
/// behind whatever ends the process. `progress` is told in words what begins. Errors: kInvalidArgument naming
/// the option, its value and the accepted range; kDataLoss when what is read back is not what was written;
/// what the directories, the drive or the backend report.
Result<DriveTestReport> test_drives(const DriveTestOptions& options,
                                    const std::function<void(std::string_view)>& progress);

/// A block and a depth that were tried, and what they gave.
struct TunePoint {
  std::uint64_t block_bytes = 0;
  std::uint32_t depth = 0;
  double gib_per_s = 0;
};

/// Tries the usual blocks and depths for a short time each.
/// Returns: what was tried, fastest first; never empty.
/// Errors: those of test_drives().
Result<std::vector<TunePoint>> tune_drives(const DriveTestOptions& options,
                                           const std::function<void(std::string_view)>& progress);

}  // namespace sluice::tools
