#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace sluice::sim {

/// A world of pending events on a manual clock, where everything that could happen in any order does, chosen
/// from a seed: equal seeds and equal calls give equal runs. Threads: one.
class SimWorld {
 public:
  explicit SimWorld(std::uint64_t seed) : seed_(seed), random_(seed) {}

  /// Adds an event that may happen once `min_delay_ns` have passed.
  void post(std::function<void()> event, std::int64_t min_delay_ns = 0);

  /// Runs one of the events that are due, chosen at random; when none is, moves the clock to the next.
  /// Returns: false when nothing is pending.
  bool step();

  /// Steps as long as something is pending.
  void run_all();

  /// Moves the clock to `time_ns` if that is later; runs nothing.
  void advance_to(std::int64_t time_ns);

  std::int64_t now_ns() const { return now_ns_; }
  bool idle() const { return events_.empty(); }
  std::size_t pending() const { return events_.size(); }
  /// When the earliest event is due. Requires: not idle().
  std::int64_t next_due_ns() const;
  std::uint64_t seed() const { return seed_; }

  /// A number below `end`, which is not 0.
  std::uint64_t below(std::uint64_t end);
  bool chance(double probability);

 private:
  struct Event {
    std::int64_t due_ns;
    std::function<void()> run;
  };

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::int64_t now_ns_ = 0;
  std::vector<Event> events_;
};

/// SLUICE_TEST_SEED from the environment, to replay a failure, otherwise `usual`.
std::uint64_t seed_or(std::uint64_t usual);

}  // namespace sluice::sim
