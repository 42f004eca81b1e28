#include "io/uring_setup.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <vector>

namespace sluice::io {
namespace {

using testing::ElementsAre;

unsigned all_features() {
  unsigned flags = 0;
  for (const RingFeature& feature : ring_features()) flags |= feature.flags;
  return flags;
}

/// A kernel that knows these flags, with the kernel's rules of which need which.
struct Kernel {
  unsigned known = 0;
  std::vector<unsigned> asked = {};

  int open(unsigned flags) {
    asked.push_back(flags);
    const auto has = [flags](unsigned flag) { return (flags & flag) != 0; };
    if ((flags & ~known) != 0) return -EINVAL;
    if (has(kRingDeferTaskrun) && !has(kRingSingleIssuer)) return -EINVAL;
    if (has(kRingTaskrunFlag) && !has(kRingCoopTaskrun) && !has(kRingDeferTaskrun)) return -EINVAL;
    return 0;
  }
};

OpenedRing opened_on(Kernel& kernel, unsigned asked = all_features()) {
  return open_ring(asked, [&](unsigned flags) { return kernel.open(flags); });
}

TEST(RingSetup, EveryKernelGivesAllThatItTakes) {
  unsigned known = 0;
  for (std::size_t count = 0;; ++count) {
    Kernel kernel{.known = known};
    const OpenedRing ring = opened_on(kernel);
    EXPECT_EQ(ring.error, 0);
    EXPECT_EQ(ring.flags, known) << describe_ring(known);
    EXPECT_EQ(kernel.asked.size(), ring_features().size() - count + 1) << "one feature was dropped at a time";
    if (count == ring_features().size()) break;
    known |= ring_features()[count].flags;
  }
}

TEST(RingSetup, AKernelThatRefusesOneFeatureStillOpens) {
  for (const RingFeature& refused : ring_features()) {
    Kernel kernel{.known = all_features() & ~refused.flags};
    const OpenedRing ring = opened_on(kernel);
    EXPECT_EQ(ring.error, 0) << refused.name;
    EXPECT_EQ(ring.flags & ~kernel.known, 0u) << refused.name;
  }
}

TEST(RingSetup, WhatWasNotAskedForIsNotTried) {
  Kernel kernel;
  EXPECT_EQ(opened_on(kernel, kRingCqSize | kRingSingleIssuer).flags, 0u);
  EXPECT_THAT(kernel.asked, ElementsAre(kRingCqSize | kRingSingleIssuer, kRingCqSize, 0u));
}

TEST(RingSetup, AnotherErrorIsNotAskedAgain) {
  for (const int error : {EPERM, ENOSYS, ENOMEM, EMFILE}) {
    std::vector<unsigned> asked;
    const OpenedRing ring = open_ring(all_features(), [&](unsigned flags) {
      asked.push_back(flags);
      return asked.size() == 3 ? -error : -EINVAL;
    });
    EXPECT_EQ(ring.error, -error);
    EXPECT_EQ(asked.size(), 3u);
  }
}

TEST(RingSetup, AKernelThatTakesNoneOfThemAndNoRingIsInvalid) {
  EXPECT_EQ(open_ring(all_features(), [](unsigned) { return -EINVAL; }).error, -EINVAL);
}

TEST(RingSetup, TellsWhatIsInUseAndWhatIsMissing) {
  EXPECT_EQ(describe_ring(all_features()), "single_issuer defer_taskrun coop_taskrun no_sqarray cqsize");
  EXPECT_EQ(describe_ring(kRingCqSize | kRingCoopTaskrun | kRingTaskrunFlag), "coop_taskrun cqsize");
  EXPECT_EQ(describe_ring(0), "plain");
  EXPECT_EQ(describe_missing(all_features(), all_features()), "");
  EXPECT_EQ(describe_missing(all_features(), all_features() & ~kRingDeferTaskrun & ~kRingNoSqArray),
            "io_uring without defer_taskrun (Linux 6.1), no_sqarray (Linux 6.6): Invalid argument (EINVAL): "
            "needs a newer Linux");
}

}  // namespace
}  // namespace sluice::io
