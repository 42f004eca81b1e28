#include "io/drive_meter.hpp"

namespace sluice::io {

void RateMeter::pass(std::int64_t now_ns) {
  if (in_flight_ > 0) busy_ns_ += static_cast<double>(now_ns - seen_ns_);
  seen_ns_ = now_ns;
}

void RateMeter::start(std::int64_t now_ns) {
  pass(now_ns);
  ++in_flight_;
}

void RateMeter::finish(std::int64_t now_ns, std::uint64_t bytes) {
  pass(now_ns);
  --in_flight_;
  bytes_ += static_cast<double>(bytes);
  while (busy_ns_ > 2.0 * kMemoryNs) {
    busy_ns_ /= 2;
    bytes_ /= 2;
  }
}

double RateMeter::bytes_per_s(std::int64_t now_ns) const {
  const double busy_ns = busy_ns_ + (in_flight_ > 0 ? static_cast<double>(now_ns - seen_ns_) : 0);
  return busy_ns > 0 ? bytes_ / busy_ns * 1e9 : 0;
}

}  // namespace sluice::io
