#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace sluice::engine {

/// What each drive has been given and has not finished, and how fast it is while it has enough of it: when more
/// would be done is what decides which drive gets a record.
/// Threads: the loop's.
class DriveLoads {
 public:
  /// Bytes in hand that show a drive's rate; with fewer it may be idle between them.
  static constexpr std::uint64_t kEnoughBytes = 4 << 20;
  /// How long a rate is watched before it counts in full.
  static constexpr std::int64_t kWindowNs = 50'000'000;

  /// Shape: the rates as they were measured before, one a drive, > 0.
  DriveLoads(std::vector<double> bytes_per_s, std::function<std::int64_t()> now_ns);

  void begin(std::uint32_t drive, std::uint64_t bytes);
  void end(std::uint32_t drive, std::uint64_t bytes);

  /// Seconds until the drive has done what it has and `bytes` more.
  double seconds_until(std::uint32_t drive, std::uint64_t bytes) const;
  double bytes_per_s(std::uint32_t drive) const { return drives_[drive].bytes_per_s; }

 private:
  struct Drive {
    double bytes_per_s = 1;
    std::uint64_t waiting_bytes = 0;
    bool watched = false;  // it has had enough since window_begin_ns
    std::int64_t window_begin_ns = 0;
    std::uint64_t window_bytes = 0;
  };

  std::vector<Drive> drives_;
  std::function<std::int64_t()> now_ns_;
};

}  // namespace sluice::engine
