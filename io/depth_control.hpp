#pragma once

#include <cstdint>

namespace sluice::io {

/// What has happened on a drive since the sample before.
struct DepthSample {
  std::int64_t now_ns = 0;
  std::uint32_t pieces = 0;  ///< finished
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  bool kept_full = false;  ///< there was always work for the whole depth
};

/// How many requests one drive is given at once: the fewest that still move kKept of the bytes a second that
/// the whole depth moves. By Little's law the latency falls as the requests in flight do, so beyond that point
/// they would only queue up in the drive.
/// From time to time it tries fewer: runs of the whole depth and of the candidate alternate, and the candidate
/// is taken only if it holds up in kPairsToWin pairs before it falls short in kPairsToLose, so that noise keeps
/// the depth rather than costs throughput. The comparison is always with the whole depth: small losses do not add up. What is seen while
/// the depth is not kept full says nothing about the drive and counts for nothing. A drive that becomes twice
/// as slow or as quick is tried anew at once; while nothing changes trials become rare.
/// It has no clock and sees no request. Threads: one.
/// Invariant: least <= depth() <= most.
/// Source: Dong, Li, Zarchy, Godfrey, Schapira, "PCC: Re-architecting Congestion Control for Consistent High
/// Performance", NSDI 2015, section 3.2 (decide by repeated paired trials, act when they agree); Cardwell et
/// al., "BBR", ACM Queue 14(5), 2016 (samples limited by the application are no samples).
class DepthControl {
 public:
  static constexpr double kKept = 0.97;
  static constexpr std::uint32_t kPairsToWin = 3;
  static constexpr std::uint32_t kPairsToLose = 2;
  static constexpr std::uint32_t kLeast = 2;  ///< one in the drive while another is on its way
  /// Pieces at a settled depth between trials: this many times the whole depth, then twice as many after each
  /// search that changes nothing, up to the second.
  static constexpr std::uint64_t kHoldLeast = 16;
  static constexpr std::uint64_t kHoldMost = 1024;

  /// Requires: at least 1.
  explicit DepthControl(std::uint32_t most);

  std::uint32_t depth() const { return depth_; }

  /// Requires: times do not go back.
  void observe(const DepthSample& sample);

 private:
  /// Pieces finished at one depth, once those sent at the depth before are through.
  struct Run {
    std::uint64_t to_settle = 0;  // pieces that do not count yet
    std::uint64_t pieces = 0;
    std::uint64_t bytes_read = 0;
    std::uint64_t bytes_written = 0;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;

    std::uint64_t bytes() const { return bytes_read + bytes_written; }
    double bytes_per_s() const;
  };
  enum class Verdict : std::uint8_t { kHoldsUp, kFallsShort, kFailsClearly, kSaysNothing };

  static bool alike(const Run& one, const Run& other);
  static Verdict compare(const Run& candidate, const Run& whole);
  void begin_run(std::uint32_t depth);
  void hold(std::int64_t now_ns);
  void try_depth(std::uint32_t candidate);
  bool add(const DepthSample& sample);
  void observe_hold(const DepthSample& sample);
  void observe_trial(const DepthSample& sample);
  void decide(Verdict verdict, std::int64_t now_ns);

  std::uint32_t least_;
  std::uint32_t most_;
  std::uint32_t depth_;    // in use
  std::uint32_t settled_;  // what trials have left it at
  Run run_;                // the one that goes on

  // while holding
  std::uint64_t held_pieces_ = 0;
  std::uint64_t hold_times_ = kHoldLeast;
  Run held_;                         // the first since settled_ or the mix has changed
  std::uint32_t before_search_ = 0;  // settled_ when the search began

  // while trying
  std::uint32_t candidate_ = 0;  // 0: holding
  std::uint32_t too_low_ = 0;    // has fallen short in this search
  std::uint32_t won_pairs_ = 0;  // in this trial
  std::uint32_t lost_pairs_ = 0;
  std::uint32_t void_pairs_ = 0;  // that said nothing
  Run whole_;                     // the pair's first run
};

}  // namespace sluice::io
