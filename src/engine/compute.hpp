#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "sluice/status.hpp"

namespace sluice::engine {

/// Work over elements that the control loop hands away, cut into tiles that may run in any order at the same
/// time.
/// Lifetime: owned by the submitter; it stays untouched from Compute::submit() until Compute::poll() returns
/// it.
class ComputeTask {
 public:
  virtual ~ComputeTask() = default;

  virtual std::uint32_t tiles() const = 0;
  /// Threads: several, one a tile.
  virtual void run(std::uint32_t tile) = 0;
  /// After the last tile, on one thread.
  virtual void finish() {}
  /// Back on the loop.
  virtual void done() = 0;
  /// Whether it may come after all tasks that are not: the trainer waits for many of these.
  virtual bool in_background() const { return false; }
};

/// The seam to the CPUs: real threads, or a simulation.
/// Threads: submit() and poll() from the control loop alone.
/// Lifetime: the destructor waits for every task that was submitted.
class Compute {
 public:
  virtual ~Compute() = default;

  /// Blocks: never.
  virtual void submit(ComputeTask& task) = 0;
  /// A finished task, or null. Each is returned exactly once.
  virtual ComputeTask* poll() = 0;
  virtual std::uint32_t threads() const = 0;
};

/// `threads` threads (0: every CPU of the affinity mask), workers of oneTBB but for one; they sleep without
/// work. `wake` is called from any thread when a task has finished.
Result<std::unique_ptr<Compute>> make_thread_compute(std::uint32_t threads, std::function<void()> wake);

}  // namespace sluice::engine
