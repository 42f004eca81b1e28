#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace sluice::peers {

enum class Mix : std::uint8_t {
  kRead,
  kWrite,
  kMixed,  ///< one read for one write
};

enum class Pattern : std::uint8_t {
  kSequential,
  kRandom,  ///< every block once in an order that looks random, then again in the same order
};

/// The order in which `count` blocks are visited, again and again.
/// Invariant: any `count` visits in a row are to `count` different blocks.
/// Cost: no memory; a few instructions a block.
class BlockOrder {
 public:
  /// Requires: count > 0.
  BlockOrder(std::uint64_t first, std::uint64_t count, Pattern pattern)
      : first_(first),
        count_(count),
        random_(pattern == Pattern::kRandom && count > 2),
        bits_(std::max(static_cast<unsigned>(std::bit_width(count - 1)), 2u)),
        mask_((std::uint64_t{1} << bits_) - 1) {}

  std::uint64_t next() {
    // The permutation is one of a power of two; what lies beyond `count` is stepped over, less than half of it.
    for (;;) {
      const std::uint64_t place = random_ ? scattered(at_) : at_;
      at_ = at_ == (random_ ? mask_ : count_ - 1) ? 0 : at_ + 1;
      if (place < count_) return first_ + place;
    }
  }

 private:
  // Odd factors and shifts to the right: each step has an inverse on bits_ bits, so all of it is a permutation.
  std::uint64_t scattered(std::uint64_t value) const {
    const unsigned shift = bits_ / 2;
    value = (value * 0x9E3779B97F4A7C15 + 0x7F4A7C15) & mask_;
    value ^= value >> shift;
    value = (value * 0xBF58476D1CE4E5B9) & mask_;
    value ^= value >> shift;
    value = (value * 0x94D049BB133111EB) & mask_;
    return value ^ (value >> shift);
  }

  std::uint64_t first_;
  std::uint64_t count_;
  bool random_;
  unsigned bits_;
  std::uint64_t mask_;
  std::uint64_t at_ = 0;
};

/// Which block is read or written next. Reads and writes that are mixed have halves of the blocks, writes the first.
class BlockChoice {
 public:
  struct Next {
    bool write;
    std::uint64_t block;
  };

  /// Requires: count > 0, for kMixed count > 1.
  BlockChoice(Mix mix, Pattern pattern, std::uint64_t first, std::uint64_t count)
      : mix_(mix),
        writes_(first, mix == Mix::kMixed ? count / 2 : count, pattern),
        reads_(mix == Mix::kMixed ? first + count / 2 : first, mix == Mix::kMixed ? count - count / 2 : count,
               pattern) {}

  Next next() {
    const bool write = mix_ == Mix::kWrite || (mix_ == Mix::kMixed && write_is_next_);
    write_is_next_ = !write_is_next_;
    return {write, write ? writes_.next() : reads_.next()};
  }

 private:
  Mix mix_;
  BlockOrder writes_;
  BlockOrder reads_;
  bool write_is_next_ = false;
};

}  // namespace sluice::peers
