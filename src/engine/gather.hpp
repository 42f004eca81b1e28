#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "engine/follower.hpp"
#include "engine/host_weights.hpp"
#include "engine/loop.hpp"
#include "engine/state.hpp"
#include "memory/range_allocator.hpp"
#include "plan/trace.hpp"

namespace sluice::engine {

struct GatherOptions {
  std::uint64_t max_fetch_bytes = 0;   ///< held by leases at once
  std::uint64_t read_ahead_bytes = 0;  ///< on their way at once without a lease
};

/// Weights gathered in the device arena: one contiguous range a tensor, filled from whatever chunks hold it,
/// pinned by leases, read ahead in the order of the trace, evicted farthest next use first. With several
/// ranks a range holds every rank's shard and this class fills this rank's; the others' come by all-gather.
/// Invariants: bytes pinned <= max_fetch_bytes; bytes on their way without a lease <= read_ahead_bytes.
/// Threads: the loop's.
class Gather {
 public:
  using Fetched = std::function<void(Status, std::uint64_t lease)>;

  Gather(State& state, HostWeights& weights, GatherOptions options);

  /// Device bytes of a tensor's range: world * shard * element bytes, on 256.
  static std::uint64_t range_bytes(const State& state, std::uint32_t tensor);

  /// Gives every kept tensor its range for good. Before anything else.
  Status place_kept();

  /// Pins the tensors (each once) for a new lease of `pass`, or fails and pins nothing.
  void fetch(std::uint64_t pass, std::vector<std::uint32_t> tensors, Fetched done);
  void release(std::uint64_t lease);
  /// Where a tensor's range is; stays while it is pinned.
  std::byte* range(std::uint32_t tensor);

  /// With several ranks: whether the range holds all ranks' shards. It does from set_gathered() until its
  /// last lease is dropped (a kept tensor's: until it changes), so that all ranks answer alike.
  /// Threads: who holds a pin, one at a time.
  bool gathered(std::uint32_t tensor) const { return entries_[tensor].gathered; }
  void set_gathered(std::uint32_t tensor) { entries_[tensor].gathered = true; }

  void prefetch(std::span<const std::uint32_t> tensors);
  /// The pass whose fetches come next and to which hints refer; null: none.
  void follow(Follower* pass);

  /// Stops read-ahead; `done` is called when nothing is on its way. What changes weights happens between the
  /// two.
  void pause(Done done);
  void resume();
  /// Forgets weights that have changed.
  /// Requires: paused, not pinned.
  void invalidate(std::uint32_t tensor);

  /// The open leases of a pass (of all passes: kAnyPass), in words; empty when there are none.
  static constexpr std::uint64_t kAnyPass = UINT64_MAX;
  std::string open_leases(std::uint64_t pass) const;
  /// The open leases on a tensor that `concerned` picks, in words; empty when there are none.
  std::string leases_on(const std::function<bool(std::uint32_t tensor)>& concerned) const;

 private:
  enum class Where : std::uint8_t { kAbsent, kFilling, kReady };
  struct Entry {
    Where where = Where::kAbsent;
    bool placed = false;    // has a range
    bool gathered = false;  // the other ranks' shards are in it
    std::uint64_t offset = 0;
    std::uint32_t pins = 0;
    std::size_t pieces_left = 0;
    Status failure;  // of the last filling
    std::vector<Done> waiting;
  };
  struct OpenLease {
    std::uint64_t pass = 0;
    std::vector<std::uint32_t> tensors;
  };
  struct Fetch {
    std::uint64_t pass = 0;
    std::vector<std::uint32_t> tensors;
    Fetched done;
    bool placed = false;      // every tensor has a range, or the fetch has failed
    std::size_t missing = 0;  // tensors still on their way
    Status failure;
  };

  std::uint64_t bytes_of(std::uint32_t tensor) const { return range_bytes(state_, tensor); }
  void pin(std::uint32_t tensor);
  void unpin(std::uint32_t tensor);
  void advance();
  bool find_ranges(const Fetch& fetch);
  bool place(Fetch& fetch);
  void finish(std::list<Fetch>::iterator fetch);
  bool make_room(std::uint32_t tensor, plan::Distance needed_in);
  void evict(std::uint32_t tensor);
  void fill(std::uint32_t tensor, io::Priority priority);
  void copy_piece(std::uint32_t tensor, const store::Piece& piece, std::byte* plane);
  void piece_done(std::uint32_t tensor, Status status);
  void read_ahead();
  bool start_ahead(std::uint32_t tensor, plan::Distance needed_in);
  std::string describe(std::uint64_t lease, const OpenLease& open) const;

  State& state_;
  HostWeights& weights_;
  const GatherOptions options_;
  memory::RangeAllocator ranges_;
  std::vector<Entry> entries_;  // by tensor
  std::vector<std::uint32_t> kept_;
  std::map<std::uint64_t, OpenLease> leases_;
  std::uint64_t next_lease_ = 1;
  std::list<Fetch> fetches_;  // in order of arrival
  std::deque<Copy> copies_;   // stable addresses
  std::vector<Copy*> free_copies_;
  std::deque<std::uint32_t> hints_;
  Follower* pass_ = nullptr;
  std::uint64_t pinned_bytes_ = 0;
  std::uint64_t ahead_bytes_ = 0;  // on their way, not pinned
  std::uint32_t filling_ = 0;
  bool paused_ = false;
  bool advancing_ = false;
  bool again_ = false;
  Done when_still_;
};

}  // namespace sluice::engine
