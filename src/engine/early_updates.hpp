#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/gradients.hpp"
#include "engine/record_updates.hpp"
#include "engine/state.hpp"
#include "plan/ready_order.hpp"
#include "plan/speculation.hpp"

namespace sluice::engine {

/// Updates during backward, by speculation: a chunk on the drive is updated as soon as the last gradient expected of
/// its tensors is in, as if all gradients were finite, nothing clipped and no number changed. What that gives lies
/// beside the state until the step is decided: then it is kept where the guess was right, given back where not, and
/// the chunk is left to the step with the gradient still held. A chunk is tried once a step; whatever goes wrong here
/// is no failure, only work for the step. Frames that no update needs yet are filled with the records whose gradients
/// are expected next, in the order of the last step, so that the drive does not wait for backward; a surprise gets its
/// frame from one of them.
/// Order of calls: begin -> (contributed | closed | reopen | renumbered | stop)* -> (decided -> take* -> conclude |
/// skipped)? -> drop.
/// Threads: the loop's.
class EarlyUpdates {
 public:
  EarlyUpdates(State& state, RecordUpdates& updates, Gradients& gradients, Undo undo);

  /// A step begins, whose gradients are multiplied by `gradient_factor` unless they are clipped. Begins to read ahead.
  /// Shape: `expected` by tensor: contributions, ContributionCounts::kUnknown where no number is the last.
  void begin(double gradient_factor, std::vector<std::uint32_t> expected);
  /// A tensor has `count` whole contributions.
  void contributed(std::uint32_t tensor, std::uint32_t count);
  /// A tensor, which has `count`, gets no more.
  void closed(std::uint32_t tensor, std::uint32_t count);
  /// A contribution is about to come: updates that did not expect it are taken back; `then` is called when the
  /// gradients may change.
  void reopen(std::uint32_t tensor, std::function<void()> then);
  /// The numbers of a group have changed.
  void renumbered(std::uint32_t group);
  /// The guess is known to be wrong: nothing more is begun in this step.
  void stop();

  /// The step is decided with these factors: nothing more is begun; what was made with others is given back.
  void decided(const StepFactors& factors, double gradient_factor);
  /// The step is decided to be skipped.
  void skipped();
  /// After decided(): whether the chunk's update has still to end, or only to give its frame back; `ended` is called for
  /// each that has. One that is right and fails is a failure of the step; one that was given up is reported as ok, and
  /// take() then gives none. A record that was read ahead may be of a chunk that got no gradient.
  bool under_way(std::uint32_t chunk) const {
    return chunks_[chunk].where == Where::kUnderWay || chunks_[chunk].where == Where::kWithdrawn;
  }
  bool any_under_way() const { return under_way_ > 0; }
  using Ended = std::function<void(std::uint32_t chunk, const Status& status)>;
  void when_ended(Ended ended) { ended_ = std::move(ended); }
  /// After decided(): the chunk's update, if it was made and is right. It is the caller's then. Counts it as kept; one
  /// that was begun and came to nothing as done again, which is the caller's to do.
  /// Requires: !under_way(chunk).
  std::optional<NextRecord> take(std::uint32_t chunk);
  /// The step has finished: what was taken and what was done again is counted.
  void conclude();

  /// Gives back all that was not taken; `done` is called when nothing is under way. Ends a step in any state.
  /// Requires: no other drop() waits.
  void drop(Done done);

 private:
  enum class Where : std::uint8_t {
    kNever,      ///< not in this step, or not yet
    kReady,      ///< waits for a frame
    kUnderWay,   ///< given up or not
    kWithdrawn,  ///< gives its frame back
    kMade,
    kThrownAway,  ///< was begun
  };
  struct Early {
    Where where = Where::kNever;
    bool open = false;          // may become ready
    std::uint32_t missing = 0;  // tensors that are not complete
    bool read_ahead = false;    // has a frame for its record, and was not begun
    bool given_up = false;      // while under way
    std::optional<NextRecord> written = {};
  };

  void complete(std::uint32_t tensor, std::uint32_t count);
  void make_ready(std::uint32_t chunk);
  /// Whether an update may take a gradient of those in frames.
  bool may_hold_gradient() const;
  void advance();
  bool begin_next();
  /// Takes out of those that are ready, up to the first that may begin, what no longer is.
  void drop_unfit();
  void make_room();
  void read_next();
  /// Gives back the frame of a record that was read ahead; that may end, and begin others, before this returns.
  void withdraw(std::uint32_t chunk);
  RecordUpdate update_of(std::uint32_t chunk) const;
  RecordUpdates::Finished ended_of(std::uint32_t chunk);
  void ended(std::uint32_t chunk, const Status& status, const std::optional<NextRecord>& written);
  bool guessed(std::uint32_t chunk, const StepFactors& factors) const;
  std::uint64_t throw_away(std::uint32_t chunk);
  void judge(plan::Guess guess, std::uint64_t thrown_away);
  void settle();

  State& state_;
  RecordUpdates& updates_;
  Gradients& gradients_;
  std::vector<std::uint32_t> candidates_;  // chunks that are ever updated early
  plan::Speculation speculation_;
  plan::ReadyOrder order_;

  // Of the step under way.
  double gradient_factor_ = 1;
  std::vector<std::uint32_t> expected_;    // by tensor
  std::vector<bool> complete_;             // by tensor
  StepFactors factors_;                    // of complete tensors that have a gradient
  std::vector<Early> chunks_;              // by chunk
  std::deque<std::uint32_t> ready_;        // those whose record is read ahead first
  std::vector<std::uint32_t> read_ahead_;  // chunks, the farthest last
  bool foretold_ = false;                  // what gets ready depends on nothing that is not known
  std::uint32_t under_way_ = 0;            // withdrawn ones too
  std::uint32_t withdrawn_ = 0;
  bool stopped_ = true;
  std::uint64_t kept_ = 0, redone_ = 0;
  Ended ended_;
  Done dropped_;
};

}  // namespace sluice::engine
