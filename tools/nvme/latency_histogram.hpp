#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::tools {

/// Values in [from_ns, below_ns).
struct LatencyBucket {
  std::uint64_t from_ns = 0;
  std::uint64_t below_ns = 0;
  std::uint64_t count = 0;
};

/// Counts durations in buckets that are 1/64 of their value wide at most.
/// Invariant: the sum of counts_ == count_.
/// Cost: 30 KiB, a few instructions a value.
class LatencyHistogram {
 public:
  void add(std::uint64_t ns) {
    ++counts_[bucket_of(ns)];
    ++count_;
    max_ns_ = std::max(max_ns_, ns);
  }

  void merge(const LatencyHistogram& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    max_ns_ = std::max(max_ns_, other.max_ns_);
  }

  std::uint64_t count() const { return count_; }
  std::uint64_t max_ns() const { return max_ns_; }

  /// The least bound that `part` (0..1) of the values do not exceed, at most 1/64 too high; 0 without values.
  std::uint64_t quantile_ns(double part) const {
    const auto wanted = static_cast<std::uint64_t>(std::ceil(part * static_cast<double>(count_)));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > 0 && seen >= wanted) return std::min(top_of(i), max_ns_);
    }
    return max_ns_;
  }

  /// Buckets that each reach to twice their beginning, from the first to the last that holds a value.
  std::vector<LatencyBucket> octaves() const {
    std::vector<LatencyBucket> all;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] == 0 && (all.empty() || top_of(i) >= max_ns_)) continue;
      const std::uint64_t from = std::bit_floor(top_of(i));
      const std::uint64_t below = from == 0 ? 1 : from >> 63 != 0 ? UINT64_MAX : 2 * from;
      if (all.empty() || all.back().from_ns != from) all.push_back({from, below, 0});
      all.back().count += counts_[i];
    }
    return all;
  }

 private:
  static constexpr unsigned kSubBits = 6;
  static constexpr std::size_t kSub = 1 << kSubBits;

  // Values below 64 have a bucket each; above, the leading 7 bits choose it.
  static std::size_t bucket_of(std::uint64_t value) {
    if (value < kSub) return value;
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kSubBits - 1;
    return (std::size_t{shift} << kSubBits) + (value >> shift);
  }
  static std::uint64_t top_of(std::size_t bucket) {
    if (bucket < 2 * kSub) return bucket;
    const std::size_t shift = (bucket >> kSubBits) - 1;
    return (((bucket & (kSub - 1)) + kSub + 1) << shift) - 1;
  }

  std::array<std::uint64_t, (64 - kSubBits + 1) * kSub> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ns_ = 0;
};

}  // namespace sluice::tools
