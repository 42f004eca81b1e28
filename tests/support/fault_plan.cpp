#include "support/fault_plan.hpp"

namespace sluice::sim {

int FaultPlan::next(const io::Request& request) {
  for (Rule& rule : rules_) {
    const Fault& fault = rule.fault;
    if (fault.op != request.op || (fault.fd != Fault::kAnyFile && fault.fd != request.fd)) continue;
    if (rule.seen++ < fault.skip || rule.hits >= fault.count || !chance(fault.probability)) continue;
    ++rule.hits;
    ++hits_;
    return fault.error;
  }
  return 0;
}

std::uint32_t FaultPlan::shortened(const io::Request& request) {
  return request.bytes <= 1 ? request.bytes : 1 + static_cast<std::uint32_t>(random_() % (request.bytes - 1));
}

bool FaultPlan::chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
}

}  // namespace sluice::sim
