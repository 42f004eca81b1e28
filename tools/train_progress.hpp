#pragma once

#include <chrono>
#include <cstdint>

#include "trainer/trainer.hpp"

namespace sluice::tools {

/// Tells on stderr how far training is: one line written over on a terminal, else a line every few seconds.
class TrainProgress {
 public:
  TrainProgress(std::uint64_t steps, std::uint64_t bytes_per_step);

  /// Training goes on after this many steps.
  void start(std::uint64_t steps_done);

  void report(const trainer::StepReport& step);

 private:
  using Clock = std::chrono::steady_clock;
  const std::uint64_t steps_;
  const std::uint64_t bytes_per_step_;
  const bool on_terminal_;
  Clock::time_point start_ = Clock::now();
  std::uint64_t first_step_ = 0;  // steps done at start_
  // Of the line before: rates are those since then.
  Clock::time_point last_time_ = start_;
  std::uint64_t last_step_ = 0;
  Stats last_stats_;
};

}  // namespace sluice::tools
