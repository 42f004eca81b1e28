#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

namespace sluice::plan {

/// How many contributions an item (a tensor) of a training step is to get. Before the first finished step of as many
/// micro-batches: one for each of its names in each of them. Then what that step had, raised at once to what a later
/// one has more, and lowered, to the most that they had, after kStepsBelow steps in a row of fewer: an update that
/// waits for a contribution too many is merely late, one that did not wait for all is made twice.
/// Cost: kNumbers * 12 bytes an item.
class ContributionCounts {
 public:
  /// No number of contributions is known to be the last.
  static constexpr std::uint32_t kUnknown = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t kStepsBelow = 16;
  /// Numbers of micro-batches that are remembered, those that a step had last.
  static constexpr std::size_t kNumbers = 4;

  enum class Often : std::uint8_t { kEachMicroBatch, kOnceAStep };
  struct Item {
    std::uint32_t names = 1;  ///< that share it
    Often often = Often::kEachMicroBatch;
  };

  explicit ContributionCounts(std::vector<Item> items) : items_(std::move(items)) {}

  /// By item; all kUnknown for 0 micro-batches.
  std::vector<std::uint32_t> expected(std::uint32_t micro_batches) const;

  /// A step has finished; one of 0 micro-batches tells nothing. Shape: `counts` by item.
  void learn(std::uint32_t micro_batches, const std::vector<std::uint32_t>& counts);

 private:
  /// Invariant: most_below < expected while steps_below > 0.
  struct Seen {
    std::uint32_t expected = 0;
    std::uint32_t steps_below = 0;  // in a row, up to the last
    std::uint32_t most_below = 0;   // in these
  };
  struct Number {
    std::uint32_t micro_batches = 0;
    std::vector<Seen> seen;  // by item
  };

  std::vector<Item> items_;
  std::deque<Number> numbers_;  // the one learned last in front
};

}  // namespace sluice::plan
