#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/drive_settings.hpp"
#include "io/file.hpp"
#include "io/open_backend.hpp"
#include "io/queue.hpp"
#include "peers/block_order.hpp"
#include "sluice/status.hpp"
#include "tools/nvme/latency_histogram.hpp"
#include "tools/nvme/test_pattern.hpp"
#include "tools/nvme/timeline.hpp"

namespace sluice::tools {

/// What is asked of the drives in one run.
struct DriveRun {
  peers::Mix mix = peers::Mix::kRead;
  peers::Pattern pattern = peers::Pattern::kSequential;
  std::uint64_t block_bytes = 0;
  std::vector<io::DriveSettings> drives;   ///< one a drive, its depth that of all threads; 0: the drive rests
  std::optional<std::uint32_t> batch = 1;  ///< completions a submitter waits for at once; none: batch_of()
  double seconds = std::numeric_limits<double>::infinity();             ///< nothing is begun afterwards
  std::uint64_t bytes_max = std::numeric_limits<std::uint64_t>::max();  ///< of what is begun, all threads
};

/// How many blocks in flight keep `settings.depth` pieces in flight.
std::uint32_t blocks_in_flight(const io::DriveSettings& settings, std::uint64_t block_bytes);

/// How many completions a submitter may wait for at once, each saving it a sleep, with no drive the slower for it:
/// what has finished and is not replaced yet is at most an eighth of the depth, and what stays in flight keeps the
/// fastest drive busy for longer than it takes to answer.
std::uint32_t batch_of(const std::vector<io::DriveSettings>& settings);

/// Those to wait for with `left_ns` until the end, where waiting for `batch` takes up to `batch_ns`: near the end one, so
/// that what finishes before it is seen before it.
std::uint32_t completions_to_await(std::uint32_t batch, std::int64_t left_ns, std::int64_t batch_ns);

/// What each block of a drive holds, where that is to be verified. Threads: each block belongs to one.
struct DriveBlocks {
  std::vector<std::uint32_t> generations;  ///< how often it was written
  std::vector<std::uint8_t> in_flight;
};

/// One drive as a submitter sees it.
struct DrivePart {
  const io::File* file = nullptr;
  std::uint64_t first_block = 0;
  std::uint64_t blocks = 0;
  DriveBlocks* contents = nullptr;  ///< null where nothing is to be verified
};

/// A submitter's part of a run.
struct RunPart {
  enum class Kind : std::uint8_t {
    kFill,     ///< each block is written once
    kMeasure,  ///< as the run says
    kCheck,    ///< each block is read once and compared
  };
  Kind kind = Kind::kMeasure;
  const DriveRun* run = nullptr;
  std::vector<io::DriveSettings> settings;  ///< one a drive, of this submitter
  std::vector<DrivePart> drives;
  std::uint64_t blocks_max = 0;  ///< to begin
  std::int64_t start_ns = 0;     ///< on io::steady_now_ns()
  std::int64_t end_ns = 0;
  std::atomic<bool>* failed = nullptr;  ///< set by the first submitter that fails, ends the others
};

struct RunCounts {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t blocks = 0;
  std::uint32_t batch = 1;   ///< completions that were waited for at once
  LatencyHistogram latency;  ///< until a completion was seen
  Timeline timeline;
};

/// A thread's side of a drive test: its backend, its buffers, and blocks kept in flight over a queue.
/// Threads: one at a time; after another one has used it, adopt() comes first.
class Submitter {
 public:
  /// Requires: `memory` has room for all blocks in flight.
  Submitter(std::unique_ptr<io::Backend> backend, std::span<std::byte> memory, std::uint64_t seed);
  ~Submitter();

  Status adopt() { return backend_->adopt(); }
  io::Backend& backend() { return *backend_; }

  /// Keeps blocks in flight until nothing more is to be begun, and waits for them.
  /// Errors: kDataLoss naming file and offset where a compared block is not what was written; kAborted after an
  /// interrupt; what the drive reports. Blocks: for as long as the run says.
  Status run(const RunPart& part);
  const RunCounts& counts() const { return counts_; }

 private:
  struct Slot;
  struct Lane;

  void prepare_slots(const RunPart& part);
  void prepare_contents();
  void give(Slot& slot);
  bool choose(Slot& slot);
  bool choose_measured(Slot& slot, Lane& lane);
  void begin_read(Slot& slot, std::uint64_t block);
  void begin_write(Slot& slot, std::uint64_t block);
  static void on_done(io::Transfer& transfer);
  Status finish(Slot& slot);
  Status compare(const Slot& slot);

  std::unique_ptr<io::Backend> backend_;
  std::span<std::byte> memory_;
  const std::uint64_t seed_;

  // Of the run.
  const RunPart* part_ = nullptr;
  std::vector<Slot> slots_;
  std::vector<Lane> lanes_;
  std::unique_ptr<ExpectedBlock> expected_;
  io::Queue* queue_ = nullptr;
  std::int64_t now_ns_ = 0;
  std::uint64_t begun_ = 0;
  bool over_ = false;
  Status failure_;
  RunCounts counts_;
};

}  // namespace sluice::tools
