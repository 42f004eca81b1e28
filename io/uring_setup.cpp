#include "io/uring_setup.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>

namespace sluice::io {
namespace {

constexpr std::array<RingFeature, 5> kFeatures{{
    {kRingCqSize, "cqsize", "5.5"},
    {kRingCoopTaskrun | kRingTaskrunFlag, "coop_taskrun", "5.19"},
    {kRingSingleIssuer, "single_issuer", "6.0"},
    {kRingDeferTaskrun, "defer_taskrun", "6.1"},
    {kRingNoSqArray, "no_sqarray", "6.6"},
}};

/// In the order in which they are told.
constexpr std::array<unsigned, 5> kTold{kRingSingleIssuer, kRingDeferTaskrun, kRingCoopTaskrun,
                                        kRingNoSqArray, kRingCqSize};

const RingFeature& feature_of(unsigned flag) {
  for (const RingFeature& feature : kFeatures)
    if ((feature.flags & flag) != 0) return feature;
  return kFeatures.front();
}

}  // namespace

std::span<const RingFeature> ring_features() { return kFeatures; }

std::string describe_ring(unsigned flags) {
  std::string names;
  for (const unsigned told : kTold) {
    if ((flags & told) == 0) continue;
    if (!names.empty()) names += ' ';
    names += feature_of(told).name;
  }
  return names.empty() ? "plain" : names;
}

std::string describe_missing(unsigned asked, unsigned flags) {
  std::string missing;
  for (const unsigned told : kTold) {
    if ((asked & ~flags & told) == 0) continue;
    const RingFeature& feature = feature_of(told);
    missing += fmt::format("{}{} (Linux {})", missing.empty() ? "" : ", ", feature.name, feature.since);
  }
  return missing.empty()
             ? ""
             : fmt::format("io_uring without {}: Invalid argument (EINVAL): needs a newer Linux", missing);
}

OpenedRing open_ring(unsigned asked, const std::function<int(unsigned flags)>& open) {
  unsigned flags = asked;
  int error = open(flags);
  for (std::size_t at = kFeatures.size(); error == -EINVAL && at-- > 0;) {
    if ((flags & kFeatures[at].flags) == 0) continue;
    flags &= ~kFeatures[at].flags;
    error = open(flags);
  }
  return {.error = error, .flags = flags};
}

}  // namespace sluice::io
