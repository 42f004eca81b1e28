#pragma once

#include <cstdint>

namespace sluice::io {

/// What a queue has seen of one drive, for whoever decides where data goes.
struct DriveObservation {
  /// While requests of this direction were in flight, over about the last half second of such time; while both
  /// are, each has its share. 0 before the first request has finished.
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  std::uint64_t read_backlog_bytes = 0;  ///< submitted and not moved, waiting or in flight
  std::uint64_t write_backlog_bytes = 0;
  std::uint64_t reads = 0;  ///< requests finished, whatever their result
  std::uint64_t writes = 0;
  std::uint64_t errors = 0;     ///< requests that were given up with the drive's error
  std::uint32_t depth = 0;      ///< in use
  std::uint32_t in_flight = 0;  ///< requests, those that wait to be sent again included
};

/// The bytes a second of one direction of one drive, over the time with something in flight.
/// It is told times and has no clock. Cost: constant, nothing is kept of a single request.
class RateMeter {
 public:
  /// Busy time after which what was seen counts half.
  static constexpr std::int64_t kMemoryNs = 250'000'000;

  /// A request is in flight from now on. Requires: times do not go back.
  void start(std::int64_t now_ns) {
    pass(now_ns);
    ++in_flight_;
  }
  /// One has finished. Requires: started before.
  void finish(std::int64_t now_ns, std::uint64_t bytes) {
    pass(now_ns);
    --in_flight_;
    bytes_ += bytes;
    if (busy_ns_ > 2 * kMemoryNs) forget();
  }
  /// What is in flight counts up to now: the rate of a drive that hangs falls.
  double bytes_per_s(std::int64_t now_ns) const;
  std::uint32_t in_flight() const { return in_flight_; }

 private:
  void pass(std::int64_t now_ns) {
    if (now_ns == seen_ns_) return;
    if (in_flight_ > 0) busy_ns_ += now_ns - seen_ns_;
    seen_ns_ = now_ns;
  }
  void forget();

  std::uint32_t in_flight_ = 0;
  std::int64_t seen_ns_ = 0;  // the time up to which busy_ns_ counts
  std::int64_t busy_ns_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace sluice::io
