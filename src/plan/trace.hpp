#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace sluice::plan {

/// Accesses from a position of a trace to another; 0 is the access that comes next.
using Distance = std::uint64_t;
inline constexpr Distance kNever = std::numeric_limits<Distance>::max();

/// The order of accesses in one pass, by item (whatever the caller numbers: chunks, parameters). A pass
/// repeats, so position size() is position 0 of the next pass. Invariant: the occurrences of all items
/// together are 0 .. size() - 1, each once. Threads: const, any. Cost: construction n log n; look-ups log n.
class Trace {
 public:
  Trace() = default;
  /// Requires: fewer than 2^32 items.
  explicit Trace(std::vector<std::uint32_t> items);

  std::uint32_t size() const { return static_cast<std::uint32_t>(items_.size()); }
  std::span<const std::uint32_t> items() const { return items_; }

  /// Positions at which `item` is accessed, ascending; empty if it never is.
  std::span<const std::uint32_t> occurrences(std::uint32_t item) const;

  /// From `position` to the next access of `item` at or after it, going on in the next pass; kNever without
  /// one. Requires: position < size(), or an empty trace.
  Distance distance(std::uint32_t position, std::uint32_t item) const;

 private:
  std::vector<std::uint32_t> items_;
  std::vector<std::uint32_t> distinct_;  // ascending
  std::vector<std::uint32_t> starts_;    // distinct_[i] is at positions_[starts_[i] .. starts_[i + 1])
  std::vector<std::uint32_t> positions_;
};

/// Writes down the accesses of a pass that is seen for the first time.
class TraceRecorder {
 public:
  void access(std::uint32_t item) { items_.push_back(item); }
  /// The accesses since the last finish().
  Trace finish();

 private:
  std::vector<std::uint32_t> items_;
};

/// Where a pass stands in its trace.
/// Invariant: position() < size(), or both are 0.
/// Lifetime: the trace outlives its cursors.
class Cursor {
 public:
  explicit Cursor(const Trace& trace) : trace_(&trace) {}

  std::uint32_t size() const { return trace_->size(); }
  /// The access that is expected next.
  std::uint32_t position() const { return position_; }

  /// Takes the position back to the first access: a pass begins, however the last one ended.
  void start_pass() { position_ = 0; }

  /// Moves past an access. One that is not the expected goes on at the nearest later match (wrapping into the
  /// next pass); one that the trace lacks leaves the position as it is. Returns: whether it was the expected
  /// access.
  bool access(std::uint32_t item);

  /// Accesses until `item` is needed, the pass repeating; 0: it is next; kNever: the trace lacks it.
  Distance next_use(std::uint32_t item) const { return trace_->distance(position_, item); }

  /// The item accessed `distance` accesses from here, the pass repeating.
  /// Requires: size() > 0.
  std::uint32_t item_ahead(Distance distance) const;

 private:
  const Trace* trace_;
  std::uint32_t position_ = 0;
};

}  // namespace sluice::plan
