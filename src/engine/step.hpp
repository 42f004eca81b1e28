#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/commits.hpp"
#include "engine/early_updates.hpp"
#include "engine/gradients.hpp"
#include "engine/probe.hpp"
#include "engine/record_updates.hpp"
#include "engine/state.hpp"
#include "engine/update.hpp"

namespace sluice::engine {

/// The update of every chunk that has a gradient: records on the drive are updated as many at once as there are record
/// frames, but for those whose early update is right; records in memory are updated afterwards, when nothing can fail
/// any more. What a commit in flight has still to write or to free is waited for. Order of calls: stream -> (keep ->
/// update_resident) or discard.
/// Threads: the loop's.
class Step {
 public:
  Step(State& state, RecordUpdates& updates, EarlyUpdates& early, Commits& commits, Gradients& gradients);

  /// Reads, updates and writes; `done` has the first failure. Chunks whose gradient is in a frame come first.
  /// Requires: the early updates have been decided with the same factors.
  void stream(StepFactors factors, Done done);
  /// Makes what stream() wrote, and what was written early, the state.
  void keep();
  /// Gives that up.
  /// Without undo records that were written over their own slots stay as they are.
  void discard();
  /// Updates the records that stay in memory.
  void update_resident(Done done);

  /// Streams the last full step's chunks again, for measurements.
  /// Requires: no step is under way; discard() after it.
  void replay(StepMode mode, Replayed chunks, Done done);

 private:
  bool touched(std::uint32_t chunk) const;
  void begin(StepMode mode, Done done);
  void take_or_update(std::uint32_t chunk);
  void advance();
  /// Ends the step with the first failure; what is under way is given up.
  void fail(const Status& status);
  void ended(const Status& status, const std::optional<NextRecord>& written);
  void update_next_resident();
  void update_one_resident(std::uint32_t chunk);

  State& state_;
  RecordUpdates& updates_;
  EarlyUpdates& early_;
  Commits& commits_;
  Gradients& gradients_;

  StepFactors factors_;
  StepMode mode_ = StepMode::kFull;
  std::vector<std::uint32_t> order_;
  std::size_t next_ = 0;
  std::uint32_t in_flight_ = 0;
  Status status_;
  Done done_;
  std::vector<NextRecord> written_;
  std::vector<std::uint32_t> residents_;
  std::size_t next_resident_ = 0;
  std::uint32_t residents_in_flight_ = 0;
  // Of the last full step.
  std::vector<std::uint32_t> spilled_;  // chunks whose gradients it read from the drive
  std::vector<std::uint32_t> early_kept_;
};

}  // namespace sluice::engine
