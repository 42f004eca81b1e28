#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/commits.hpp"
#include "engine/gradients.hpp"
#include "engine/records.hpp"
#include "engine/state.hpp"
#include "engine/update.hpp"
#include "memory/frame_pool.hpp"

namespace sluice::engine {

/// What of an update is done; all but kFull are measurements and change no record on the drive.
enum class StepMode : std::uint8_t {
  kFull,
  kIoOnly,       ///< the same requests in the same order and depth, nothing computed
  kComputeOnly,  ///< the same updates on whatever the frames hold, nothing read or written
};

/// When a record is updated, which says what becomes of its gradient.
enum class Moment : std::uint8_t {
  kDecided,  ///< the step is decided: the gradient is consumed
  kEarly,    ///< it may have to be done again: the gradient is kept, and nobody waits for the update
};

/// The update of one chunk whose record is on the drive.
struct RecordUpdate {
  std::uint32_t chunk = 0;
  const StepFactors* factors = nullptr;  ///< of the chunk's tensors they stay as they are until it has ended
  StepMode mode = StepMode::kFull;
  Moment moment = Moment::kDecided;
};

/// A record that an update has written; its slot is its own, beside the chunk's current one, or without undo that.
struct NextRecord {
  std::uint32_t chunk = 0;
  io::Place slot;
  UpdateResult result;
};

/// Updates of records on the drive, side by side in as many record frames as there are: each is read, updated and
/// written to a slot beside its own (without undo to its own, unless a commit names it). What a commit in flight has
/// still to free is waited for. An update that cannot end waits for I/O, compute, a gradient frame that a request
/// always gets in the end, or the commit in flight, never for another update; one that is read ahead waits for its
/// user as well.
/// Invariant: at most one update of a chunk is under way.
/// Threads: the loop's.
class RecordUpdates {
 public:
  /// With ok: what was written, unless nothing was (kComputeOnly). Whoever is told keeps it or gives it back.
  using Finished = std::function<void(Status, const std::optional<NextRecord>&)>;

  RecordUpdates(State& state, Records& records, Commits& commits, Gradients& gradients,
                memory::FramePool& frames, Undo undo);

  /// Whether a frame is free for one more.
  bool has_room() const { return frames_.free_frames() > 0; }
  /// Updates under way that have, or wait for, a gradient.
  std::size_t gradients_in_use() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        jobs_, [](const Job& job) { return job.active && !job.held_back && !job.gradient_free; }));
  }
  /// Begins with the record alone, behind all other I/O: the update goes no further until go_on(), or give_up().
  /// `finished` is called when its frame is free again.
  /// Requires: has_room(), no update of the chunk is under way.
  void read_ahead(const RecordUpdate& update, Finished finished);
  /// Requires: read_ahead() began the chunk's update, which was not given up.
  void go_on(std::uint32_t chunk);
  /// Both at once.
  void start(const RecordUpdate& update, Finished finished);
  /// Makes an update that is under way end as soon as it can with kAborted; a slot that it has is given back. One that
  /// waits for the commit in flight, or for go_on(), ends, and `finished` is called, before this returns.
  void give_up(std::uint32_t chunk);
  void give_up_all();
  /// An early update is decided to be right: it goes on as any other. Requires: it is under way.
  void adopt(std::uint32_t chunk);
  /// Calls `then` when the update under way, if there is one, has no more use for the chunk's gradient.
  void when_gradient_is_free(std::uint32_t chunk, std::function<void()> then);

  /// Makes what was written the state.
  void keep(const NextRecord& written);
  /// Frees the slot. A record that was written over the current one stays as it is.
  void give_back(const NextRecord& written);

 private:
  struct Job {
    RecordUpdate update;
    Finished finished;
    bool active = false;
    bool given_up = false;
    bool held_back = false;  // waits for go_on()
    std::byte* record = nullptr;
    std::byte* gradient = nullptr;
    bool gradient_free = false;  // no use for it any more
    std::uint32_t awaited = 0;   // of the record, the gradient and go_on()
    UpdateResult result;
    std::optional<NextRecord> written;
    Status status;
    std::vector<std::function<void()>> waiting = {};  // for the gradient
  };

  void begin(const RecordUpdate& update, Finished finished, io::Priority priority);
  Job& take_job();
  Job* find(std::uint32_t chunk);
  void arrived(Job& job, Status status);
  void compute(Job& job);
  void find_target(Job& job);
  void write(Job& job, io::Place target);
  void let_go(Job& job);
  void end(Job& job);

  State& state_;
  Records& records_;
  Commits& commits_;
  Gradients& gradients_;
  memory::FramePool& frames_;
  const Undo undo_;
  std::deque<Job> jobs_;  // stable addresses; as many as were ever under way at once
};

}  // namespace sluice::engine
