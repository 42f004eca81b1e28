#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::plan {

/// The order in which items (chunks) get ready in a step, foretold from the last step that went to its end, unless that
/// step went another way than the one before it: what to read ahead.
/// Cost: constant for each item and call.
class ReadyOrder {
 public:
  static constexpr double kAlike = 0.75;

  explicit ReadyOrder(std::uint32_t items) : foretold_(items), ready_(items) {}

  /// A step begins, whatever became of the last one.
  void begin();
  /// An item is ready. At most once for each item in a step.
  void ready(std::uint32_t item);
  bool is_ready(std::uint32_t item) const { return ready_[item]; }
  /// The step goes to its end: the next one is expected to go the same way. One in which nothing got ready tells
  /// nothing; after one in which less than kAlike of the items followed each other as foretold, nothing is foretold.
  void learn();

  /// The item that is expected next of those that are not ready; each is given once in a step, in order.
  std::optional<std::uint32_t> next();
  /// Whether an item that was expected later than this one is ready.
  bool passed_over(std::uint32_t item) const { return foretold_[item] && *foretold_[item] < passed_; }

 private:
  bool goes_as_foretold() const;

  std::vector<std::uint32_t> order_;                    // of the last step
  std::vector<std::optional<std::uint32_t>> foretold_;  // by item: its place in it
  bool trusted_ = true;
  // Of this step.
  std::vector<std::uint32_t> seen_;  // in order
  std::vector<bool> ready_;          // by item
  std::uint32_t next_ = 0;           // place in order_
  std::uint32_t passed_ = 0;         // the last place in order_ that is ready
};

}  // namespace sluice::plan
