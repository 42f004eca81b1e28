#pragma once

#include <cstdint>

namespace sluice::plan {

/// Whether a step's decision is what early updates take for granted: all gradients finite, nothing clipped, no number
/// changed since.
enum class Guess : std::uint8_t { kRight, kWrong };

/// Whether updates before a step's decision are worth their while. After a step that had to throw some away they are
/// not, until the guess would have been right in 16 steps in a row.
class Speculation {
 public:
  static constexpr std::uint32_t kStepsOfPause = 16;

  bool allowed() const { return steps_to_go_ == 0; }

  /// A step was decided, which made `thrown_away` early updates worthless.
  /// Requires: thrown_away = 0 if the guess was right.
  void decided(Guess guess, std::uint64_t thrown_away) {
    if (guess == Guess::kRight) {
      if (steps_to_go_ > 0) --steps_to_go_;
    } else if (thrown_away > 0 || !allowed()) {
      steps_to_go_ = kStepsOfPause;
    }
  }

 private:
  std::uint32_t steps_to_go_ = 0;  // right guesses in a row until the pause is over
};

}  // namespace sluice::plan
