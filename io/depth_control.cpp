#include "io/depth_control.hpp"

#include <algorithm>
#include <cmath>

namespace sluice::io {
namespace {

constexpr std::uint64_t kRunPieces = 32;  // least of a run: fewer would be an accident of a few completions
constexpr std::uint32_t kVoidPairsMost = 8;  // then what is asked of the drive is too uneven to learn from
constexpr double kNearly = 0.85;             // of the whole depth's rate: below, one pair is enough
constexpr double kChanged = 2;               // times slower or quicker: another drive, as it were
constexpr double kAlike = 0.125;  // by how much the runs of a pair may differ in mix and piece size

}  // namespace

double DepthControl::Run::bytes_per_s() const {
  return static_cast<double>(bytes()) / static_cast<double>(end_ns - begin_ns) * 1e9;
}

DepthControl::DepthControl(std::uint32_t most)
    : least_(std::min(kLeast, most)), most_(most), depth_(most), settled_(most) {
  hold(0);
}

void DepthControl::begin_run(std::uint32_t depth) {
  run_ = {.to_settle = std::max(depth, depth_)};
  depth_ = depth;
}

/// Returns: whether the run is complete.
bool DepthControl::add(const DepthSample& sample) {
  if (run_.to_settle > 0) {
    run_.to_settle -= std::min<std::uint64_t>(run_.to_settle, sample.pieces);
    run_.begin_ns = sample.now_ns;
    return false;
  }
  run_.pieces += sample.pieces;
  run_.bytes_read += sample.bytes_read;
  run_.bytes_written += sample.bytes_written;
  run_.end_ns = sample.now_ns;
  return run_.pieces >= std::max<std::uint64_t>(2 * depth_, kRunPieces) && run_.end_ns > run_.begin_ns;
}

void DepthControl::observe(const DepthSample& sample) {
  if (least_ == most_) return;
  candidate_ == 0 ? observe_hold(sample) : observe_trial(sample);
}

void DepthControl::hold(std::int64_t now_ns) {
  candidate_ = 0;
  held_pieces_ = 0;
  begin_run(settled_);
  run_.begin_ns = now_ns;
}

void DepthControl::observe_hold(const DepthSample& sample) {
  if (!sample.kept_full) return begin_run(settled_);
  held_pieces_ += sample.pieces;
  bool changed = false;
  if (add(sample)) {
    if (alike(run_, held_)) {
      const double slower = held_.bytes_per_s() / run_.bytes_per_s();
      changed = slower > kChanged || slower * kChanged < 1;
    } else {
      held_ = run_;
    }
    begin_run(settled_);
  }
  if (changed) {
    hold_times_ = kHoldLeast;
    held_ = {};
  } else if (held_pieces_ < hold_times_ * most_) {
    return;
  }
  before_search_ = settled_;
  too_low_ = 0;
  // What was settled on is proved again before anything below it.
  try_depth(settled_ < most_ ? settled_ : std::max(least_, most_ / 2));
}

void DepthControl::try_depth(std::uint32_t candidate) {
  candidate_ = candidate;
  won_pairs_ = 0;
  lost_pairs_ = 0;
  void_pairs_ = 0;
  begin_run(most_);
}

void DepthControl::observe_trial(const DepthSample& sample) {
  if (!sample.kept_full) {
    if (++void_pairs_ > kVoidPairsMost) return decide(Verdict::kSaysNothing, sample.now_ns);
    return begin_run(most_);
  }
  if (!add(sample)) return;
  if (depth_ == most_) {
    whole_ = run_;
    return begin_run(candidate_);
  }
  switch (compare(run_, whole_)) {
    case Verdict::kHoldsUp:
      if (++won_pairs_ == kPairsToWin) return decide(Verdict::kHoldsUp, sample.now_ns);
      break;
    case Verdict::kFallsShort:
      if (++lost_pairs_ == kPairsToLose) return decide(Verdict::kFallsShort, sample.now_ns);
      break;
    case Verdict::kFailsClearly:
      return decide(Verdict::kFallsShort, sample.now_ns);
    case Verdict::kSaysNothing:
      if (++void_pairs_ > kVoidPairsMost) return decide(Verdict::kSaysNothing, sample.now_ns);
  }
  begin_run(most_);
}

bool DepthControl::alike(const Run& one, const Run& other) {
  if (one.bytes() == 0 || other.bytes() == 0) return false;
  const auto write_share = [](const Run& run) {
    return static_cast<double>(run.bytes_written) / static_cast<double>(run.bytes());
  };
  const auto piece_bytes = [](const Run& run) {
    return static_cast<double>(run.bytes()) / static_cast<double>(run.pieces);
  };
  return std::abs(write_share(one) - write_share(other)) <= kAlike &&
         std::abs(piece_bytes(one) - piece_bytes(other)) <= kAlike * piece_bytes(other);
}

DepthControl::Verdict DepthControl::compare(const Run& candidate, const Run& whole) {
  if (!alike(candidate, whole)) return Verdict::kSaysNothing;
  const double kept = candidate.bytes_per_s() / whole.bytes_per_s();
  return kept >= kKept ? Verdict::kHoldsUp : kept >= kNearly ? Verdict::kFallsShort : Verdict::kFailsClearly;
}

void DepthControl::decide(Verdict verdict, std::int64_t now_ns) {
  if (verdict == Verdict::kHoldsUp) settled_ = candidate_;
  if (verdict == Verdict::kFallsShort) {
    too_low_ = candidate_;
    if (candidate_ == settled_) settled_ = most_;
  }
  // Halves down to the first that falls short, then halves what is between the two down to a quarter.
  // 32 holds up, 8 falls short: 20 is tried; it falls short too: 26; it holds up: 26 - 20 <= 26 / 4, the end.
  const std::uint32_t below = too_low_ == 0 ? settled_ / 2 : (too_low_ + settled_) / 2;
  const bool more = too_low_ == 0 ? below >= least_ : settled_ - too_low_ > std::max(1u, settled_ / 4);
  if (verdict != Verdict::kSaysNothing && more) return try_depth(below);
  if (settled_ != before_search_) held_ = {};
  hold_times_ = settled_ == before_search_ ? std::min(2 * hold_times_, kHoldMost) : kHoldLeast;
  hold(now_ns);
}

}  // namespace sluice::io
