#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/commit_exchange.hpp"
#include "engine/records.hpp"
#include "engine/state.hpp"
#include "store/commit_record.hpp"
#include "store/existing.hpp"

namespace sluice::engine {

struct CommitOptions {
  std::uint32_t keep_commits = 0;
  std::span<std::byte> buffer = {};  ///< of one commit record place, on the grid; empty with keep_commits 0
  CommitExchange* exchange = nullptr;
  std::function<std::int64_t()> now_ns;
};

/// Durable versions of the state. A commit writes what lives in memory to free slots, flushes every drive, writes its
/// record to a place that no kept commit has, flushes again, hears how the other ranks fared, and only then frees the
/// slots that the oldest commit alone named. State on NVMe is in its slots already: a commit holds on to them.
/// Invariant: one commit is in flight at most; kept() <= keep_commits, each with a place of its own.
/// Threads: the loop's.
class Commits {
 public:
  Commits(State& state, Records& records, CommitOptions options);

  /// The commits that a store was opened with, ascending. Before anything else.
  void adopt(const std::vector<store::HeldCommit>& kept);
  /// The number that the next commit gets.
  void number_from(std::uint64_t number) { next_number_ = number; }

  /// A call of commit().
  struct Request {
    std::vector<std::byte> user_bytes = {};
    Status refusal =
        {};  ///< of its caller: the commit is dropped without writing, ranks that did better hear of it
    CallerWaits waits = CallerWaits::kNo;
  };
  /// Begins a commit of the state as it is. Requires: none is in flight. Returns: its number.
  std::uint64_t begin(Request request, std::function<void(CommitResult)> done);
  /// Calls `then` when no commit is in flight: at once, or after the one that is.
  void after(std::function<void()> then);

  /// Whether a record may be written over its own slot while no commit names that.
  enum class InPlace : std::uint8_t { kNo, kAllowed };
  /// Who is kept waiting for a slot.
  enum class Waiter : std::uint8_t {
    kTrainer,
    kNobody,  ///< until trainer_waits(): its wait is not counted
  };
  using SlotReady = std::function<void(Result<io::Place>)>;
  /// Where a chunk's record may be written: its own slot or a free one, at once or when the commit in flight is over;
  /// for a frozen chunk, which has a slot of its own alone, at once a new one if need be.
  /// Errors: the commit's failure, if it leaves none free; kResourceExhausted, kNoSpace where there is no room
  /// for a new one.
  void find_target(std::uint32_t chunk, InPlace in_place, SlotReady ready, Waiter waiter = Waiter::kTrainer);
  /// Ends the wait of find_target() for the chunk, if there is one: its `ready` is called with kAborted before this
  /// returns.
  void stop_waiting(std::uint32_t chunk);
  /// The trainer waits from here on for every slot that was asked for.
  void trainer_waits();
  /// Calls `then` when the chunk's record in memory may change: no commit has still to write it.
  void when_saved(std::uint32_t chunk, std::function<void()> then);

  /// What a commit does beside its record, for measurements. Requires: none is in flight.
  void flush_twice(Done done);

  /// Looks for a good copy of planes that turned out damaged in the slots of kept commits.
  /// `done` has a half-sentence that names the newest commit that has one, or says that there is none.
  /// Lifetime: `record` stays until then; it is written to.
  void find_copy(std::uint32_t chunk, PlaneRange planes, std::byte* record,
                 std::function<void(std::string)> done);

 private:
  /// A commit that every rank holds.
  struct Version {
    std::uint64_t number = 0;
    std::uint32_t place = 0;
    std::vector<store::CommittedChunk> chunks;
  };
  struct Transfer : io::Transfer {
    Commits* commits = nullptr;
  };

  void take_stored(std::uint32_t chunk);
  /// Makes the commit in flight fail, unless it has failed already or `cause` is ok.
  void drop(Status cause);
  void save_more();
  /// A record in memory and the slot that it goes to.
  struct Save {
    std::uint32_t chunk = 0;
    io::Place slot;
  };
  void plan_save(std::uint32_t chunk);
  void save(const Save& next);
  void write_saved(std::uint32_t chunk, io::Place slot);
  void saved(std::uint32_t chunk, Status status);
  void flush_state();
  void write_record();
  void flush_record();
  void exchange();
  void agreed(CommitResult result);
  void keep();
  void mark_next_drive();
  void flush_again();
  void flushed();
  void conclude();
  using Next = void (Commits::*)();
  struct Movement {
    io::Op op = io::Op::kFlush;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  // from the front of the buffer
  };
  /// The same on every drive; then `next`.
  void submit_to_all(const Movement& movement, Next next);
  void submit(std::uint32_t drive, const Movement& movement);
  static void finished(io::Transfer& transfer);
  std::uint32_t free_place() const;
  void begin_stall();
  void end_stall();
  Result<io::Place> take_slot(std::uint32_t chunk, InPlace in_place);
  /// A free slot at the chunk's home, unless another drive would have its record written sooner by far.
  std::optional<io::Place> free_slot(std::uint32_t chunk);
  void look_at_copy(std::size_t version, std::uint32_t chunk, PlaneRange planes, std::byte* record,
                    std::function<void(std::string)> done);

  State& state_;
  Records& records_;
  const CommitOptions options_;
  std::deque<Version> kept_;  // ascending in number
  std::uint64_t next_number_ = 1;

  // The commit in flight.
  bool in_flight_ = false;
  store::CommitRecord record_;
  CommitResult result_;
  std::uint32_t place_ = 0;
  std::int64_t begin_ns_ = 0;
  std::deque<Save> to_save_;
  std::vector<bool> saving_;    // by chunk: has still to be written
  std::vector<bool> retained_;  // by chunk: a reference is held on its slot
  std::uint32_t saves_ = 0;     // under way
  std::function<void(CommitResult)> done_;
  std::vector<Transfer> transfers_;  // by drive
  std::uint32_t transfers_left_ = 0;
  Status transfer_failure_;
  Next next_ = nullptr;
  std::uint32_t drives_marked_ = 0;
  Done flushed_;

  // Who waits for it.
  std::vector<std::function<void()>> after_;
  struct SlotWaiter {
    std::uint32_t chunk = 0;
    InPlace in_place = InPlace::kNo;
    SlotReady ready;
  };
  std::vector<SlotWaiter> slot_waiters_;
  std::vector<std::pair<std::uint32_t, std::function<void()>>> save_waiters_;
  std::optional<std::int64_t> stall_begin_ns_;
};

}  // namespace sluice::engine
