#include "io/drive_meter.hpp"

namespace sluice::io {

void RateMeter::forget() {
  while (busy_ns_ > 2 * kMemoryNs) {
    busy_ns_ /= 2;
    bytes_ /= 2;
  }
}

double RateMeter::bytes_per_s(std::int64_t now_ns) const {
  const std::int64_t busy_ns = busy_ns_ + (in_flight_ > 0 ? now_ns - seen_ns_ : 0);
  return busy_ns > 0 ? static_cast<double>(bytes_) / static_cast<double>(busy_ns) * 1e9 : 0;
}

}  // namespace sluice::io
