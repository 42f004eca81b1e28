#include "tools/nvme/timeline.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace sluice::tools {
namespace {

constexpr std::uint64_t kBinsLeast = 1024;  // of about a second

}  // namespace

void Timeline::coarsen() {
  ++shift_;
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    const std::uint64_t bytes = bins_[i];
    bins_[i] = 0;
    bins_[i / 2] += bytes;
  }
  bins_.resize((bins_.size() + 1) / 2);
}

std::uint64_t Timeline::make_room(std::int64_t at_ns) {
  while (static_cast<std::uint64_t>(at_ns) >> shift_ >= kBinsMost) coarsen();
  const std::uint64_t bin = static_cast<std::uint64_t>(at_ns) >> shift_;
  // Many at once: most blocks of some MiB end in a bin of their own.
  bins_.resize(std::max(bins_.size(), std::bit_ceil(std::max(bin + 1, kBinsLeast))));
  return bin;
}

void Timeline::merge(const Timeline& other) {
  Timeline addend = other;
  while (shift_ < addend.shift_) coarsen();
  while (addend.shift_ < shift_) addend.coarsen();
  bins_.resize(std::max(bins_.size(), addend.bins_.size()));
  for (std::size_t i = 0; i < addend.bins_.size(); ++i) bins_[i] += addend.bins_[i];
}

std::uint64_t Timeline::bytes() const {
  return std::accumulate(bins_.begin(), bins_.end(), std::uint64_t{0});
}

double Timeline::bytes_between(double begin_ns, double end_ns) const {
  const auto bin_ns = static_cast<double>(std::uint64_t{1} << shift_);
  double bytes = 0;
  for (std::size_t i = static_cast<std::size_t>(std::max(begin_ns, 0.0) / bin_ns); i < bins_.size(); ++i) {
    const double from = static_cast<double>(i) * bin_ns;
    if (from >= end_ns) break;
    const double part = (std::min(end_ns, from + bin_ns) - std::max(begin_ns, from)) / bin_ns;
    bytes += part * static_cast<double>(bins_[i]);
  }
  return bytes;
}

}  // namespace sluice::tools
