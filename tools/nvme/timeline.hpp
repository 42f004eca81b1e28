#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::tools {

/// How many bytes were finished when, in bins of equal length from the start of a measurement.
/// Invariant: at most kBinsMost bins of 2^shift_ ns; their sum is bytes().
/// Cost: a shift and an addition an entry; at most 1 MiB.
class Timeline {
 public:
  static constexpr std::size_t kBinsMost = std::size_t{1} << 17;

  /// Requires: at_ns is not negative.
  void add(std::int64_t at_ns, std::uint64_t bytes) {
    std::uint64_t bin = static_cast<std::uint64_t>(at_ns) >> shift_;
    if (bin >= bins_.size()) bin = make_room(at_ns);
    bins_[bin] += bytes;
  }

  void merge(const Timeline& other);

  std::uint64_t bytes() const;

  /// Bytes finished in [begin_ns, end_ns), a bin at the border in proportion to its part inside.
  double bytes_between(double begin_ns, double end_ns) const;

 private:
  std::uint64_t make_room(std::int64_t at_ns);
  void coarsen();

  unsigned shift_ = 20;  // 1.05 ms, twice that whenever the bins are too many
  std::vector<std::uint64_t> bins_;
};

}  // namespace sluice::tools
