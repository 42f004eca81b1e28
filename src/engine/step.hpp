#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "engine/commits.hpp"
#include "engine/gradients.hpp"
#include "engine/records.hpp"
#include "engine/state.hpp"
#include "engine/update.hpp"
#include "memory/frame_pool.hpp"

namespace sluice::engine {

/// What of a step is done; all but kFull are measurements and change no record on the drive.
enum class StepMode : std::uint8_t {
  kFull,
  kIoOnly,       ///< the same requests in the same order and depth, nothing computed
  kComputeOnly,  ///< the same updates on whatever the frames hold, nothing read or written
};

/// The update of every chunk that has a gradient: records on the drive are read ahead, updated and written
/// behind to a slot beside their own (without undo to their own, unless a commit names it), as many at once as there
/// are record frames; records in memory are updated afterwards, when nothing can fail any more. What a commit in
/// flight has still to write or to free is waited for. Order of calls: stream -> (keep -> update_resident) or discard.
/// Threads: the loop's.
class Step {
 public:
  Step(State& state, Records& records, Commits& commits, Gradients& gradients, memory::FramePool& frames,
       Undo undo);

  /// Reads, updates and writes; `done` has the first failure. Chunks whose gradient is in a frame come first.
  void stream(StepFactors factors, StepMode mode, Done done);
  /// Makes what stream() wrote the state.
  void keep();
  /// Gives up what stream() wrote.
  /// Without undo records that were written over their own slots stay as they are.
  void discard();
  /// Updates the records that stay in memory.
  void update_resident(Done done);

  /// Streams the last full step's chunks again, for measurements.
  /// Requires: discard() after it.
  void replay(StepMode mode, Done done);

 private:
  struct Job {
    std::uint32_t chunk = 0;
    std::byte* record = nullptr;
    std::byte* gradient = nullptr;
    std::uint32_t reads_left = 0;
    UpdateResult result;
    Status status;
  };
  struct Written {
    std::uint32_t chunk = 0;
    io::Place slot;
    UpdateResult result;
  };

  bool touched(std::uint32_t chunk) const;
  void advance();
  void start(std::uint32_t chunk, std::byte* frame);
  void arrived(Job& job, Status status);
  void update(Job& job);
  void find_target(Job& job);
  void write(Job& job, io::Place target);
  void end(Job& job);
  void update_next_resident();
  void update_one_resident(std::uint32_t chunk);

  State& state_;
  Records& records_;
  Commits& commits_;
  Gradients& gradients_;
  memory::FramePool& frames_;
  const Undo undo_;

  StepFactors factors_;
  StepMode mode_ = StepMode::kFull;
  std::vector<std::uint32_t> order_;
  std::size_t next_ = 0;
  std::uint32_t in_flight_ = 0;
  Status status_;
  Done done_;
  std::deque<Job> jobs_;  // stable addresses
  std::vector<Job*> free_jobs_;
  std::vector<Written> written_;
  std::vector<std::uint32_t> residents_;
  std::size_t next_resident_ = 0;
  std::uint32_t residents_in_flight_ = 0;
  std::vector<std::uint32_t> spilled_;  // chunks whose gradients the last full step read from the drive
};

}  // namespace sluice::engine
