#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "sluice/communicator.hpp"
#include "sluice/status.hpp"

namespace sluice::comm {

enum class Collective : std::uint8_t { kAllGather, kAllToAll, kBarrier, kDuplicate };

/// One rank's part in a collective call.
/// Lifetime: the spans are the caller's and outlive its call.
struct Part {
  Collective collective = Collective::kBarrier;
  std::span<const GatheredShards> tensors{};            // kAllGather
  std::span<const std::span<const std::byte>> sends{};  // kAllToAll
  std::span<const std::span<std::byte>> receives{};     // kAllToAll
};

/// What is wrong with the parts that all ranks brought to one call; ok when they agree.
/// Errors: kFailedPrecondition for different collectives; kInvalidArgument for lengths that disagree.
Status check_parts(std::span<const Part> parts);

/// Where the ranks of one process meet. A call is two waits: arrive() until all parts are there and checked,
/// leave() until nobody reads this rank's buffers any more. Between them a rank may read every rank's part
/// and buffers.
/// Invariant: a part stays readable from the moment arrive() returns ok until its rank's leave() returns.
/// Threads: any; a rank makes one call at a time.
class Meeting {
 public:
  explicit Meeting(std::uint32_t world);

  std::uint32_t world() const { return static_cast<std::uint32_t>(parts_.size()); }

  /// Errors: those of check_parts(), on every rank alike; the cause given to end(); kFailedPrecondition when
  /// this rank is in another call already. After an error leave() is not called.
  /// Blocks: until all ranks have arrived or the meeting has ended.
  Status arrive(std::uint32_t rank, const Part& part);

  /// Errors: the cause given to end().
  /// Blocks: until all ranks have left or, when the meeting has ended, until the ranks that arrived have
  /// stopped reading.
  Status leave(std::uint32_t rank);

  /// Requires: between arrive() and leave().
  const Part& part(std::uint32_t rank) const { return parts_[rank]; }
  const std::shared_ptr<Meeting>& duplicate() const { return duplicate_; }

  /// Ends all waits, and all later calls, with `cause`. The first cause stays.
  void end(const Status& cause);

 private:
  void wait_for_readers(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_; parts_ and duplicate_ are also read without it between arrive() and leave(), when none is
  // written.
  std::vector<Part> parts_;
  std::vector<bool> in_call_;     // of a rank: between the start of arrive() and the end of its call
  std::uint32_t arrived_ = 0;     // ranks at the gathering under way
  std::uint32_t left_ = 0;        // ranks that have read all they need of the last one
  std::uint32_t reading_ = 0;     // ranks between arrive() and leave()
  std::uint64_t gatherings_ = 0;  // that all ranks have come to
  std::uint64_t departures_ = 0;  // that all ranks have left
  Status outcome_;                // of the last gathering
  std::shared_ptr<Meeting> duplicate_;
  Status ended_;
};

}  // namespace sluice::comm
