#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/directory.hpp"
#include "memory/arena.hpp"
#include "peers/process_cpu.hpp"
#include "tools/nvme/submitter.hpp"

namespace sluice::tools {

enum class Verify : std::uint8_t { kNo, kYes };
enum class Registration : std::uint8_t { kNo, kYes };

struct TestBedOptions {
  std::vector<std::string> directories;  ///< one a drive
  std::uint64_t size_bytes = 0;          ///< of all files together
  std::uint64_t block_bytes = 0;         ///< the files have a multiple of it; with verification, the only one
  std::uint32_t depth_max = 0;           ///< of a drive, all threads together; at least `threads`
  std::uint64_t memory_bytes = 0;        ///< of a thread's blocks in flight
  std::uint32_t threads = 1;
  std::vector<int> cpus;  ///< that the threads may run on; empty: the kernel's choice
  io::BackendKind backend = io::BackendKind::kAuto;
  Registration registration = Registration::kYes;
  Verify verify = Verify::kNo;
};

/// What a test has in use, for reports.
struct TestBedUse {
  std::string backend;
  std::string ring;     ///< its setup flags; empty: no ring, or none that says
  bool direct = false;  ///< on every drive
  bool registered_buffers = false;
  bool registered_files = false;
  std::string buffer_pages;
  std::vector<std::string> fallbacks;  ///< what was hoped for and is not in use, with the reason
};

struct RunResult {
  RunCounts counts;
  double seconds = 0;  ///< until the last block was finished
  peers::CpuSeconds cpu;
};

/// Files, buffers and backends of a drive test, for many runs over the same data. The files have no name, so nothing
/// stays behind whatever ends the process.
/// Threads: one at a time; a bed of several threads starts them for each run.
class TestBed {
 public:
  /// Makes the files, of their full size but without data, takes memory and opens a backend a thread.
  /// Errors: kInvalidArgument where blocks are off a file's grid, or the CPUs are not there; kNoSpace; what the
  /// directories or the backend report.
  static Result<std::unique_ptr<TestBed>> create(const TestBedOptions& options);

  /// Writes real data to every block, once, before anything is measured. Errors: as Submitter::run().
  Status fill();

  /// Requires: what the options allow: block_bytes that fit, depth, memory. Errors: as Submitter::run().
  Result<RunResult> run(const DriveRun& run);

  /// Reads everything back and compares every byte with what was written last.
  /// Requires: Verify::kYes. Errors: kDataLoss naming the drive's file and the offset.
  Status check();

  const io::File& file(std::uint32_t drive) const { return files_[drive]; }
  std::span<std::byte> memory() const { return arena_.span(); }
  std::uint64_t file_bytes() const { return file_bytes_; }  ///< of each drive
  std::uint64_t bytes_written() const { return bytes_written_; }
  /// Of the first thread's backend.
  TestBedUse in_use();
  /// Errors: kInvalidArgument where the files have too few of these blocks to choose from.
  Status check_blocks(peers::Mix mix, std::uint64_t block_bytes) const;

 private:
  explicit TestBed(const TestBedOptions& options) : options_(options) {}
  Status make_files();
  Status open_submitters();
  void register_all(Submitter& submitter, std::span<std::byte> memory);
  void note(const std::string& text);
  std::vector<RunPart> parts(const DriveRun& run, RunPart::Kind kind);
  Result<RunResult> run_parts(std::vector<RunPart>& parts);
  Status run_threads(const std::vector<RunPart>& parts);
  DriveRun whole_pass() const;

  const TestBedOptions options_;
  std::vector<io::File> files_;
  std::uint64_t file_bytes_ = 0;
  std::vector<DriveBlocks> contents_;  // one a drive, where there is something to verify
  memory::Arena arena_;
  std::vector<std::unique_ptr<Submitter>> submitters_;  // one a thread
  TestBedUse use_;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace sluice::tools
