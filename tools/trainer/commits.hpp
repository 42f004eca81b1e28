#pragma once

#include <cstdint>
#include <optional>

#include "sluice/engine.hpp"
#include "trainer/progress.hpp"

namespace sluice::trainer {

/// Makes a run's steps durable: every so many of them while training goes on, and at the end.
class Commits {
 public:
  /// `every` 0: none are made. Lifetime: of the engine.
  Commits(Engine& engine, std::uint64_t every) : engine_(engine), every_(every) {}

  /// The state is that of this commit, after so many steps.
  void recovered(std::uint64_t number, std::uint64_t steps_done);

  /// Starts a commit when it is time; it becomes durable while the next steps are computed. A failure of an earlier
  /// one is told by the engine's next call.
  Status after_step(const Progress& progress);

  /// Blocks: until all steps done are durable.
  /// Errors: what a commit under way ended with, or the engine's; the next call tries anew.
  Status finish(const Progress& progress);

  /// The newest commit that was started or recovered; nothing without one, and after finish() has failed.
  std::optional<std::uint64_t> number() const { return number_; }

 private:
  Status commit(const Progress& progress);

  Engine& engine_;
  const std::uint64_t every_;
  std::optional<std::uint64_t> number_;
  std::uint64_t steps_done_ = 0;  // of that one
  CommitTicket ticket_;           // of that one, when this run made it
  bool under_way_ = false;        // ticket_ was not waited for
};

}  // namespace sluice::trainer
