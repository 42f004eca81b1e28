#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "engine/commits.hpp"
#include "engine/follower.hpp"
#include "engine/records.hpp"
#include "engine/state.hpp"
#include "memory/frame_pool.hpp"

namespace sluice::engine {

/// Weight planes in host frames: read from the drive and verified once, kept while there is room, evicted
/// farthest next use first. A chunk that is host-resident is served from its record.
/// Invariant: pins are held only while a copy is under way, so a request always gets a frame in the end.
/// Threads: the loop's.
class HostWeights {
 public:
  /// `plane` is null when the status is not ok; it stays until release().
  using Ready = std::function<void(Status, std::byte* plane)>;

  HostWeights(State& state, Records& records, Commits& commits, memory::FramePool& frames);

  /// Pins the weight plane of a chunk and hands it over; a failed request pins nothing.
  void acquire(std::uint32_t chunk, io::Priority priority, Ready ready);
  void release(std::uint32_t chunk);
  /// Somebody waits for a plane that was asked for ahead of need: it goes before all that is only read ahead.
  void expedite(std::uint32_t chunk);

  /// A frame for the caller's own use, returned with give_back().
  void borrow(std::function<void(std::byte* frame)> ready);
  void give_back(std::byte* frame);

  /// Forgets a plane that has changed.
  /// Requires: not pinned.
  void invalidate(std::uint32_t chunk);

  /// The pass whose requests come next; null: none.
  void follow(Follower* pass) { pass_ = pass; }

 private:
  enum class Where : std::uint8_t { kAbsent, kQueued, kLoading, kPresent };
  struct Plane {
    Where where = Where::kAbsent;
    std::byte* frame = nullptr;
    std::uint32_t pins = 0;
    std::vector<Ready> waiting;
  };

  void pump();
  std::byte* find_frame();
  void load(std::uint32_t chunk, std::byte* frame, io::Priority priority);
  void loaded(std::uint32_t chunk, Status status);

  State& state_;
  Records& records_;
  Commits& commits_;
  memory::FramePool& frames_;
  std::vector<Plane> planes_;  // by chunk
  std::deque<std::function<void(std::byte*)>> borrowers_;
  std::deque<std::uint32_t> demanded_;
  std::deque<std::uint32_t> ahead_;
  std::vector<std::uint32_t> present_;  // chunks in frames
  Follower* pass_ = nullptr;
};

}  // namespace sluice::engine
