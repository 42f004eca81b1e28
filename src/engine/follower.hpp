#pragma once

#include <cstdint>

#include "plan/trace.hpp"

namespace sluice::engine {

/// Whether read-ahead may go on into the next repetition of a pass, or stops at its end because the weights
/// change there.
enum class PassEnd : std::uint8_t { kWeightsStay, kWeightsChange };

/// One kind of access in one pass: where the pass stands in the trace of an earlier repetition, and its own
/// trace in the making.
struct Follower {
  Follower(const plan::Trace& trace, PassEnd pass_end) : cursor(trace), end(pass_end) {}

  void access(std::uint32_t item) {
    cursor.access(item);
    recorder.access(item);
    ++accesses;
  }

  /// Accesses that lie ahead and are worth looking at.
  plan::Distance horizon() const {
    if (end == PassEnd::kWeightsStay) return cursor.size();
    return accesses < cursor.size() ? cursor.size() - accesses : 0;
  }

  plan::Cursor cursor;
  plan::TraceRecorder recorder;
  PassEnd end;
  std::uint64_t accesses = 0;
};

/// Accesses until `item` is needed; kNever without a pass.
inline plan::Distance next_use(const Follower* follower, std::uint32_t item) {
  return follower != nullptr ? follower->cursor.next_use(item) : plan::kNever;
}

}  // namespace sluice::engine
