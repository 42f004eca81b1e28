#pragma once

#include <cstdint>

#include "sluice/status.hpp"

namespace sluice {

/// Dynamic loss scaling, a value that the trainer keeps and copies.
/// Invariant: floor <= scale().
class SLUICE_API LossScaler {
 public:
  struct Options {
    double initial_scale = 65536;
    double growth = 2;
    double backoff = 0.5;
    std::uint32_t growth_interval = 2000;  ///< good steps before the scale grows
    double floor = 1;
    std::uint32_t max_bad_steps_at_floor = 8;  ///< in a row, then update() is an error
  };
  LossScaler() : LossScaler(Options{}) {}
  explicit LossScaler(Options options);

  double scale() const { return scale_; }

  /// After each step, with StepResult::skipped.
  /// Errors: kFailedPrecondition after max_bad_steps_at_floor bad steps in a row at the floor.
  enum class Outcome : std::uint8_t { kGood, kSkipped };
  Status update(Outcome outcome);

 private:
  Options options_;
  double scale_;
  std::uint32_t good_steps_ = 0;
  std::uint32_t bad_steps_at_floor_ = 0;
};

}  // namespace sluice
