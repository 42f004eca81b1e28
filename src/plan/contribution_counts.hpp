#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace sluice::plan {

/// How many contributions an item (a tensor) of a training step is to get: what it got in the last finished step of as
/// many micro-batches; before that one for each of its names in each micro-batch.
class ContributionCounts {
 public:
  /// No number of contributions is known to be the last.
  static constexpr std::uint32_t kUnknown = std::numeric_limits<std::uint32_t>::max();

  enum class Often : std::uint8_t { kEachMicroBatch, kOnceAStep };
  struct Item {
    std::uint32_t names = 1;  ///< that share it
    Often often = Often::kEachMicroBatch;
  };

  explicit ContributionCounts(std::vector<Item> items) : items_(std::move(items)) {}

  /// By item; all kUnknown for 0 micro-batches.
  std::vector<std::uint32_t> expected(std::uint32_t micro_batches) const;

  /// A step has finished; one of 0 micro-batches tells nothing. Shape: `counts` by item.
  void learn(std::uint32_t micro_batches, std::vector<std::uint32_t> counts);

 private:
  std::vector<Item> items_;
  std::uint32_t seen_micro_batches_ = 0;  // 0: no step of a known number
  std::vector<std::uint32_t> seen_;       // by item
};

}  // namespace sluice::plan
