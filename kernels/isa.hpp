#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace sluice::kernels {

/// The instruction sets that one kernel source is compiled for, ascending within an architecture.
enum class Isa { kScalar, kSse4, kAvx2, kAvx512, kNeon };

/// The plain word for `isa`: "scalar", "sse4", "avx2", "avx512", "neon".
std::string_view isa_name(Isa isa);

/// Whether `isa` rounds once in a multiply-add. Every kernel gives the same bits on all targets that do.
bool fuses_multiply_add(Isa isa);

/// The target that kernel calls run on: the best one this CPU supports, unless a test has forced another.
/// Threads: any. Cost: one table look-up after the first call.
Isa isa_in_use();

/// The targets that this build has and this CPU supports, best first.
/// Cost: asks the CPU anew (cpuid may trap to a hypervisor).
std::vector<Isa> isas_available();

/// Makes every later kernel call of the process run on `isa`, or on the best target again if empty. Tests
/// only. Requires: `isa` is one of isas_available() as it was before anything was forced; no kernel call is
/// running.
void force_isa_for_test(std::optional<Isa> isa);

}  // namespace sluice::kernels
