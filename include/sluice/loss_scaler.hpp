#pragma once

#include <cstdint>

#include "sluice/status.hpp"

namespace sluice {

/// Dynamic loss scaling, a value that the trainer keeps and copies.
/// Invariant: floor <= scale() < infinity.
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

  /// What it has come to, for the user bytes of a commit; the options are the trainer's.
  struct State {
    double scale = 0;
    std::uint32_t good_steps = 0;          ///< in a row, since the scale last changed
    std::uint32_t bad_steps_at_floor = 0;  ///< in a row
    friend bool operator==(const State&, const State&) = default;
  };
  State state() const { return {scale_, good_steps_, bad_steps_at_floor_}; }
  /// Goes on from there.
  /// Errors, after which nothing has changed: kInvalidArgument for a scale that is not finite or below the floor.
  Status restore(const State& state);

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
