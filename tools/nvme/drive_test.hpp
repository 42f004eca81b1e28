#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.hpp"
#include "tools/nvme/test_bed.hpp"
#include "tools/nvme/throughput.hpp"

namespace sluice::tools {

struct DriveTestOptions {
  std::vector<std::string> directories;  ///< one a drive
  peers::Mix mix = peers::Mix::kRead;
  peers::Pattern pattern = peers::Pattern::kSequential;
  std::uint64_t size_bytes = 0;   ///< of all files together
  std::uint64_t block_bytes = 0;  ///< of one transfer
  std::uint64_t piece_bytes = 0;  ///< of one request, of which a transfer has several; 0: block_bytes
  std::uint32_t depth = 0;        ///< requests in flight on each drive
  std::vector<io::DriveSettings> settings;  ///< one a drive, in place of piece_bytes and depth; empty: those
  std::optional<std::uint32_t> batch;       ///< completions to wait for at once; none: batch_of()
  std::uint32_t threads = 1;                ///< which share the depth and the blocks
  std::vector<int> cpus;                    ///< that they may run on; empty: the kernel's choice
  std::optional<double> seconds;
  std::optional<std::uint64_t> bytes;  ///< to move; with both, what comes first ends the test
  io::BackendKind backend = io::BackendKind::kAuto;
  Registration registration = Registration::kYes;
  Verify verify = Verify::kNo;
};

struct DriveTestReport {
  Throughput throughput;
  double seconds = 0;
  peers::CpuSeconds cpu_a_gib;
  LatencyHistogram latency;  ///< of blocks
  std::uint32_t batch = 1;   ///< completions that were waited for at once
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;       ///< while it was measured
  std::uint64_t test_bytes_written = 0;  ///< by the whole test
  /// By everybody to the drives during the test, as far as they tell.
  std::optional<std::uint64_t> drive_bytes_written;
  bool verified = false;
  TestBedUse use;
};

/// Told in words what begins.
using Progress = std::function<void(std::string_view)>;

/// Errors: kInvalidArgument naming the option, its value and the accepted range.
Status validate(const DriveTestOptions& options);

/// How requests go to each drive.
std::vector<io::DriveSettings> settings_of(const DriveTestOptions& options);

/// What a bed needs for `options` to be measured on it. Requires: valid options.
TestBedOptions bed_options(const DriveTestOptions& options);

/// "--block is 5 bytes; accepted: …".
Status refuse(std::string_view option, std::string_view value, std::string_view accepted);

/// Writes a file of real data in each directory, keeps `depth` requests in flight on each and measures.
/// Errors: those of validate(); kDataLoss when what is read back is not what was written; kAborted after an
/// interrupt; what the directories, the drive or the backend report.
Result<DriveTestReport> test_drives(const DriveTestOptions& options, const Progress& progress);

/// One run over a bed, and what it gave; what only a whole test knows stays empty.
/// Requires: the run has an end, by seconds or by bytes. Errors: as TestBed::run().
Result<DriveTestReport> measure(TestBed& bed, const DriveRun& run);

}  // namespace sluice::tools
