#include "engine/drive_loads.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace sluice::engine {
namespace {

/// Of a window in the rate: a moment's hiccup counts little, a few windows tell.
constexpr double kNews = 0.25;

}  // namespace

DriveLoads::DriveLoads(std::vector<double> bytes_per_s, std::function<std::int64_t()> now_ns)
    : drives_(bytes_per_s.size()), now_ns_(std::move(now_ns)) {
  for (std::size_t drive = 0; drive < drives_.size(); ++drive)
    drives_[drive].bytes_per_s = bytes_per_s[drive];
}

void DriveLoads::begin(std::uint32_t drive, std::uint64_t bytes) {
  Drive& of = drives_[drive];
  of.waiting_bytes += bytes;
  if (of.watched || of.waiting_bytes < kEnoughBytes) return;
  of.watched = true;
  of.window_begin_ns = now_ns_();
  of.window_bytes = 0;
}

void DriveLoads::end(std::uint32_t drive, std::uint64_t bytes) {
  Drive& of = drives_[drive];
  of.waiting_bytes -= bytes;
  if (!of.watched) return;
  of.window_bytes += bytes;
  const std::int64_t now_ns = now_ns_();
  const std::int64_t window_ns = now_ns - of.window_begin_ns;
  of.watched = of.waiting_bytes >= kEnoughBytes;
  const bool over =
      window_ns >= kWindowNs || (!of.watched && of.window_bytes >= kEnoughBytes && window_ns > 0);
  if (!over) return;
  const double seen = static_cast<double>(of.window_bytes) / (static_cast<double>(window_ns) * 1e-9);
  const double part = std::min(1.0, static_cast<double>(window_ns) / static_cast<double>(kWindowNs));
  of.bytes_per_s += kNews * part * (seen - of.bytes_per_s);
  of.window_begin_ns = now_ns;
  of.window_bytes = 0;
}

double DriveLoads::seconds_until(std::uint32_t drive, std::uint64_t bytes) const {
  const Drive& of = drives_[drive];
  return static_cast<double>(of.waiting_bytes + bytes) / of.bytes_per_s;
}

}  // namespace sluice::engine
