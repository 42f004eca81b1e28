#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/status.hpp"
#include "trainer/model.hpp"

namespace sluice::trainer {

/// A text in two parts that share no byte.
/// Invariant: training + held_out = all bytes, in this order.
struct SplitText {
  std::span<const std::uint8_t> training;
  std::span<const std::uint8_t> held_out;
};

/// The whole file.
/// Errors: as the system names them, with the path.
Result<std::vector<std::uint8_t>> read_text(const std::string& path);

/// Holds out the last tenth, and at least 4 KiB.
/// Errors: kInvalidArgument, with the numbers, when the parts are too short for a sequence of context + 1
/// bytes each.
Result<SplitText> split_text(std::span<const std::uint8_t> text, std::size_t context);

/// The entropy of single bytes, in nats: the loss of the best guess that looks at nothing.
double unigram_entropy(std::span<const std::uint8_t> text);

/// A number in [0, bound) that depends on seed and counter alone.
/// Requires: bound > 0. Source: Steele, Lea, Flood 2014 (SplitMix64's finaliser).
std::uint64_t random_below(std::uint64_t bound, std::uint64_t seed, std::uint64_t counter);

/// Fixed room for the bytes of one batch.
class BatchBuffer {
 public:
  BatchBuffer(std::size_t sequences, std::size_t length);

  /// Sequences from anywhere in `text`, chosen by seed and `number` alone, so that any batch can be drawn
  /// again. Requires: text is longer than a sequence. Lifetime: until the next call.
  Batch draw(std::span<const std::uint8_t> text, std::uint64_t seed, std::uint64_t number);

  /// Sequences one after the other from byte `first` on: as many as there are bytes for, at most the
  /// buffer's.
  Batch follow(std::span<const std::uint8_t> text, std::size_t first);

  std::uint64_t bytes() const { return inputs_.size() + targets_.size(); }

 private:
  void put(std::size_t sequence, std::span<const std::uint8_t> from);
  Batch first_sequences(std::size_t count) const;

  std::size_t sequences_;
  std::size_t length_;
  std::vector<std::uint8_t> inputs_;
  std::vector<std::uint8_t> targets_;
};

}  // namespace sluice::trainer
