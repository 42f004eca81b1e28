#pragma once

#include <cstdint>

#include "engine/commits.hpp"
#include "engine/records.hpp"
#include "engine/state.hpp"

namespace sluice::engine {

/// Reads the records that stay in memory from their slots and verifies them, several at once.
/// Threads: the loop's.
class ResidentLoader {
 public:
  ResidentLoader(State& state, Records& records, Commits& commits)
      : state_(state), records_(records), commits_(commits) {}

  /// Once. `done` has the first failure.
  void load(Done done);

 private:
  void start_more();
  void start(std::uint32_t chunk);
  void over(Status status);

  State& state_;
  Records& records_;
  Commits& commits_;
  std::uint32_t next_ = 0;
  std::uint32_t under_way_ = 0;
  Status status_;
  Done done_;
};

}  // namespace sluice::engine
