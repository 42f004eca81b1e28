#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/arena.hpp"
#include "sluice/status.hpp"

namespace sluice::bench {

/// Where a benchmark's data lie: a tile a thread, again and again, or a working set beyond any last-level cache.
enum class Place { kInCache, kOutOfCache };
std::string place_name(Place place);

/// Whether figures are wanted, or that every benchmark still runs.
enum class Effort { kMeasure, kSmall };

/// What all benchmarks of a process share. One arena, faulted in before anything is timed, so that all work on
/// the same pages: a page's first touch costs more than any kernel.
/// Invariant: the arena has room for a chunk a thread of kElementBytesMax bytes an element; 1.5 GiB at least
/// with kMeasure, since last-level caches of half a GiB are about.
struct Workplace {
  static constexpr std::size_t kElementBytesMax = 24;

  memory::Arena arena;
  std::size_t threads = 1;  ///< that can run at once
  Effort effort = Effort::kMeasure;

  /// Errors: what Arena::create and read_topology refuse.
  static Result<Workplace> create(Effort effort);

  /// Elements whose planes lie side by side as in a record: those of a chunk by default, fewer with kSmall.
  std::size_t chunk_elements() const;
  /// Pairs of turns: their median is the figure.
  std::int64_t turns() const { return effort == Effort::kMeasure ? 11 : 1; }
  /// Times that a turn goes over the data: what is in cache takes a measurable time by that.
  std::size_t passes(Place place) const;
  double probe_milliseconds() const { return effort == Effort::kMeasure ? 2 : 0.02; }
  /// One thread, and all of them where there are more.
  std::vector<std::size_t> thread_counts() const;
};

}  // namespace sluice::bench
