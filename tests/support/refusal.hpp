#pragma once

#include <cstdint>
#include <vector>

namespace sluice::sim {

/// A system call that the kernel refuses with `error`: always, or by one argument's low 32 bits.
struct Refusal {
  static constexpr int kAlways = -1;
  long call = 0;
  int error = 0;
  int argument = kAlways;
  std::uint32_t any_of_bits = 0;  ///< refused when one of them is set; 0: not looked at
  std::uint32_t below = 0;        ///< refused when smaller; 0: not looked at
  std::uint32_t equals = 0;       ///< refused when the same; 0: not looked at
  int descriptor = kAlways;       ///< refused for this first argument alone
  std::uint32_t command = 0;      ///< refused for this second argument alone; 0: not looked at
};

/// Puts this process under a seccomp filter; there is no way back, so only in a child.
/// Returns: whether it worked.
bool refuse(const std::vector<Refusal>& refusals);

/// Refuses this thread the next `times` of these calls and lets later ones through; only in a child.
/// Returns: whether it worked.
bool refuse_at_first(const Refusal& refusal, int times);

}  // namespace sluice::sim
