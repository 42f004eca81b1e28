#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/follower.hpp"
#include "engine/records.hpp"
#include "engine/state.hpp"
#include "kernels/gradient.hpp"
#include "memory/frame_pool.hpp"

namespace sluice::engine {

/// Part of one contribution: consecutive elements of one segment.
struct Contribution {
  std::uint32_t chunk = 0;
  std::uint32_t offset = 0;  ///< element of the chunk, a multiple of 256
  std::uint32_t count = 0;   ///< elements; a multiple of 256 unless the segment ends here
  const void* source = nullptr;
  kernels::GradientDType dtype = kernels::GradientDType::kF32;
  kernels::Accumulate accumulate = kernels::Accumulate::kStore;
};

/// Gradient planes of one step: in host frames while there is room, else spilled to the drive, those needed
/// last first, and read back (verified) when they are added to or stepped. The norm is kept exactly as
/// contributions arrive.
/// Invariant: a frame is pinned only while something computes on it, so a request always gets one in the end.
/// Threads: the loop's.
class Gradients {
 public:
  using Ready = std::function<void(Status, std::byte* plane)>;

  Gradients(State& state, Records& records, memory::FramePool& frames);

  /// Adds a part of a contribution; the source stays until `done`.
  void add(const Contribution& contribution, Done done);

  /// Pins the gradient plane of a chunk that has one and hands it over. A failed request pins nothing.
  void acquire(std::uint32_t chunk, Ready ready);
  /// Whether a released plane is asked for again: one that hardly will be is the first to be spilled.
  enum class NextUse : std::uint8_t { kLikely, kUnlikely };
  void release(std::uint32_t chunk, NextUse next_use = NextUse::kLikely);
  /// Releases a plane whose values are used up.
  /// Requires: no other pin.
  void consume(std::uint32_t chunk);
  /// Frees the frame, if it has one that nobody uses, of a plane whose values are used up. One that is on the drive, or
  /// on its way, stays until drop_all().
  void discard(std::uint32_t chunk);
  /// Forgets everything of the step when nothing is under way any more.
  void drop_all(Done done);

  bool present(std::uint32_t chunk) const { return planes_[chunk].where != Where::kNone; }
  bool in_frame(std::uint32_t chunk) const { return planes_[chunk].where == Where::kHeld; }
  std::uint32_t frames() const { return frames_.frames(); }
  bool spilled(std::uint32_t chunk) const { return planes_[chunk].where == Where::kSpilled; }
  /// For measurements: as if the plane were on the drive, to be read and not verified.
  /// Requires: !present(chunk).
  void replay_spilled(std::uint32_t chunk);
  /// What contributions have added up to so far.
  const kernels::NormDelta& norm() const { return norm_; }
  /// The first failure to keep a gradient of this step: its values are lost.
  const Status& failure() const { return failure_; }

  /// The pass whose contributions come next; null: none.
  void follow(Follower* pass) { pass_ = pass; }

 private:
  enum class Where : std::uint8_t {
    kNone,      ///< no contribution yet
    kHeld,      ///< in a frame
    kSpilling,  ///< in a frame, on its way out
    kSpilled,   ///< on the drive
    kLoading,   ///< in a frame, on its way in
  };
  struct Plane {
    Where where = Where::kNone;
    std::byte* frame = nullptr;
    std::uint32_t pins = 0;
    std::uint64_t checksum = 0;  // of what is spilled
    bool queued = false;         // waits for a frame
    bool spare = false;          // hardly asked for again
    bool replayed = false;       // only its read counts, its values do not
    std::vector<Ready> waiting;
  };

  PlaneView view(std::uint32_t chunk) const;
  void pump();
  void load(std::uint32_t chunk, io::Priority priority);
  void serve(std::uint32_t chunk);
  void fail(std::uint32_t chunk, const Status& status);
  std::optional<std::uint32_t> choose_victim() const;
  bool spill_one();
  void spill_ahead();
  void load_ahead();
  void spill_done(std::uint32_t chunk, Status status);
  void settle();
  void forget(std::uint32_t chunk);

  State& state_;
  Records& records_;
  memory::FramePool& frames_;
  std::vector<Plane> planes_;  // by chunk
  std::deque<std::uint32_t> queue_;
  std::vector<std::uint32_t> held_;
  kernels::NormDelta norm_;
  Status failure_;
  std::uint32_t spilling_ = 0;
  std::uint32_t under_way_ = 0;  // spills, loads and additions
  std::uint32_t stepped_chunks_ = 0;
  std::uint32_t present_ = 0;
  Done when_still_;
  Follower* pass_ = nullptr;
};

}  // namespace sluice::engine
