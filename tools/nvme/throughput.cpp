#include "tools/nvme/throughput.hpp"

#include <algorithm>
#include <cstddef>

namespace sluice::tools {
namespace {

constexpr std::size_t kTenths = 10;
constexpr double kLeastSecond = 0.5;  // what is left of the last one counts from here on
constexpr double kNsPerSecond = 1e9;

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Throughput throughput_of(const Timeline& timeline, double seconds) {
  const auto rate = [&](double begin_s, double end_s) {
    return timeline.bytes_between(begin_s * kNsPerSecond, end_s * kNsPerSecond) / 0x1p30 / (end_s - begin_s);
  };
  Throughput result;
  std::vector<double> tenths;
  for (std::size_t i = 0; i < kTenths; ++i)
    tenths.push_back(
        rate(seconds * static_cast<double>(i) / kTenths, seconds * static_cast<double>(i + 1) / kTenths));
  result.slowest_tenth = *std::min_element(tenths.begin(), tenths.end());
  result.mean = std::max(rate(0, seconds), result.slowest_tenth);  // rounding apart they are in this order
  for (double second = 0; second + kLeastSecond <= seconds; ++second)
    result.per_second.push_back(rate(second, std::min(second + 1, seconds)));
  if (result.per_second.empty()) result.per_second.push_back(result.mean);
  const auto& all = result.per_second;
  result.peak_second = *std::max_element(all.begin(), all.end());
  result.sustained = median({all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end()});
  return result;
}

}  // namespace sluice::tools
