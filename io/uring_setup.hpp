#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::io {

/// Flags of a ring. Source: io_uring_setup(2); the numbers are the kernel's interface.
inline constexpr unsigned kRingCqSize = 1u << 3;       ///< as many completions as asked for
inline constexpr unsigned kRingCoopTaskrun = 1u << 8;  ///< no interrupt for a completion
inline constexpr unsigned kRingTaskrunFlag = 1u << 9;  ///< the ring shows that completions wait to be fetched
inline constexpr unsigned kRingSingleIssuer = 1u << 12;  ///< one thread alone submits
inline constexpr unsigned kRingDeferTaskrun = 1u << 13;  ///< completions are worked off when that thread asks
inline constexpr unsigned kRingNoSqArray = 1u << 16;  ///< entries are taken in their order, without an index

/// One thing that a ring asks of the kernel.
struct RingFeature {
  unsigned flags = 0;
  std::string_view name;
  std::string_view since;  ///< the first Linux that takes it
};

/// What rings ask for, in the order of their Linux: none needs one that comes after it.
std::span<const RingFeature> ring_features();

/// What is in use, "single_issuer defer_taskrun coop_taskrun no_sqarray cqsize"; "plain" for none of them.
std::string describe_ring(unsigned flags);

/// Which of the features `asked` are not in `flags` and what offers them; empty when none.
std::string describe_missing(unsigned asked, unsigned flags);

struct OpenedRing {
  int error = 0;  ///< a negative errno when none opened
  unsigned flags = 0;
};

/// Opens a ring with as many of the features in `asked` as the kernel takes. `open` gets flags and returns 0
/// or a negative errno. While that is EINVAL, the youngest feature left is given up and it is asked again,
/// down to none: a kernel that takes a feature takes every older one, so nothing that it takes is given up,
/// and DEFER_TASKRUN is never asked for without SINGLE_ISSUER, which it needs.
OpenedRing open_ring(unsigned asked, const std::function<int(unsigned flags)>& open);

}  // namespace sluice::io
