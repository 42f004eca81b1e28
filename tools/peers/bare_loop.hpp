#pragma once

#include <string_view>

#include <fmt/format.h>

#include "peers/work.hpp"
#include "sluice/status.hpp"

namespace sluice::peers {

/// The books of a bare loop: what may begin, what is in flight, how long it took.
/// Cost: a clock call for each batch of completions.
class BareLoop {
 public:
  explicit BareLoop(const Work& work)
      : work_(work),
        choice_(work.mix, work.pattern, 0, work.file_bytes / work.block_bytes),
        cpu_before_(process_cpu()),
        start_ns_(now_ns()),
        end_ns_(start_ns_ + static_cast<std::int64_t>(work.seconds * 1e9)) {}

  /// Whether another request may begin; if so it counts as begun.
  bool begin() {
    if (over_ || begun_bytes_ >= work_.bytes_max) return false;
    begun_bytes_ += work_.block_bytes;
    ++in_flight_;
    return true;
  }
  BlockChoice::Next next() { return choice_.next(); }

  Status finish(std::int64_t result) {
    --in_flight_;
    if (result == static_cast<std::int64_t>(work_.block_bytes)) {
      moved_bytes_ += work_.block_bytes;
      return {};
    }
    over_ = true;
    if (result < 0) return status_from_errno(static_cast<int>(-result), "request of a bare loop");
    return {Code::kIoError,
            fmt::format("request of a bare loop moved {} of {} bytes", result, work_.block_bytes)};
  }

  /// After each batch.
  void look_at_the_clock() {
    if (now_ns() >= end_ns_ || (work_.stopped != nullptr && work_.stopped())) over_ = true;
  }
  void give_up() { over_ = true; }
  std::uint32_t in_flight() const { return in_flight_; }

  Moved moved(std::string how) const {
    return {.bytes = moved_bytes_,
            .seconds = static_cast<double>(now_ns() - start_ns_) * 1e-9,
            .cpu = process_cpu() - cpu_before_,
            .how = std::move(how)};
  }

 private:
  const Work& work_;
  BlockChoice choice_;
  std::uint32_t in_flight_ = 0;
  std::uint64_t begun_bytes_ = 0;
  std::uint64_t moved_bytes_ = 0;
  bool over_ = false;
  CpuSeconds cpu_before_;
  std::int64_t start_ns_;
  std::int64_t end_ns_;
};

}  // namespace sluice::peers
