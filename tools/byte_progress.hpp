#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "sluice/status.hpp"

namespace sluice::tools {

/// Tells on a terminal how many bytes a long work has moved, one line written over; elsewhere it is silent.
class ByteProgress {
 public:
  /// `total_bytes` 0: not known.
  ByteProgress(std::string doing, std::uint64_t total_bytes);
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  /// Errors: kAborted after an interrupt.
  Status report(std::uint64_t bytes);

  /// Ends the line, for other text to follow.
  void end();

  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  const std::string doing_;
  const std::uint64_t total_bytes_;
  const bool on_terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = {};
  bool line_open_ = false;
};

}  // namespace sluice::tools
