#include "engine/early_updates.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "plan/contribution_counts.hpp"

namespace sluice::engine {

EarlyUpdates::EarlyUpdates(State& state, RecordUpdates& updates, Gradients& gradients, Undo undo)
    : state_(state),
      updates_(updates),
      gradients_(gradients),
      order_(static_cast<std::uint32_t>(state.chunks.size())),
      chunks_(state.chunks.size()) {
  if (undo == Undo::kOff) return;
  for (std::uint32_t chunk = 0; chunk < chunks_.size(); ++chunk)
    if (state.stepped(chunk) && state.chunks[chunk].resident == nullptr) candidates_.push_back(chunk);
}

void EarlyUpdates::begin(double gradient_factor, std::vector<std::uint32_t> expected) {
  gradient_factor_ = gradient_factor;
  expected_ = std::move(expected);
  complete_.assign(expected_.size(), false);
  factors_.assign(expected_.size(), {});
  for (std::uint32_t tensor = 0; tensor < expected_.size(); ++tensor)
    complete_[tensor] = expected_[tensor] == 0;
  for (const std::uint32_t chunk : candidates_) {
    chunks_[chunk] = {.open = true};
    for (const store::Segment& segment : state_.layout.segments_of(chunk))
      if (!complete_[segment.parameter]) ++chunks_[chunk].missing;
  }
  ready_.clear();
  order_.begin();
  foretold_ = std::ranges::count(expected_, plan::ContributionCounts::kUnknown) == 0;
  kept_ = redone_ = 0;
  stopped_ = !speculation_.allowed();
  advance();
}

void EarlyUpdates::contributed(std::uint32_t tensor, std::uint32_t count) {
  if (!complete_[tensor] && count >= expected_[tensor]) complete(tensor, count);
}

void EarlyUpdates::closed(std::uint32_t tensor, std::uint32_t count) {
  if (!complete_[tensor]) complete(tensor, count);
}

void EarlyUpdates::complete(std::uint32_t tensor, std::uint32_t count) {
  complete_[tensor] = true;
  if (count > 0) factors_[tensor] = make_factors(state_, tensor, gradient_factor_);
  for (const store::Piece& piece : state_.layout.pieces_of(tensor)) {
    Early& early = chunks_[piece.chunk];
    if (!early.open || --early.missing > 0) continue;
    const bool touched = std::ranges::any_of(
        state_.layout.segments_of(piece.chunk),
        [this](const store::Segment& segment) { return factors_[segment.parameter].has_value(); });
    if (!touched) continue;
    order_.ready(piece.chunk);
    if (early.where == Where::kNever) make_ready(piece.chunk);  // else it is withdrawn
  }
  advance();
}

void EarlyUpdates::make_ready(std::uint32_t chunk) {
  chunks_[chunk].where = Where::kReady;
  const auto first_without =
      std::ranges::find_if_not(ready_, [this](std::uint32_t other) { return chunks_[other].read_ahead; });
  ready_.insert(chunks_[chunk].read_ahead ? first_without : ready_.end(), chunk);
}

void EarlyUpdates::reopen(std::uint32_t tensor, std::function<void()> then) {
  if (!complete_[tensor]) return then();
  const auto left = std::make_shared<std::size_t>(1);  // one for the loop below
  const auto one_less = [left, then = std::move(then)] {
    if (--*left == 0) then();
  };
  // All of them before one is given up: that may end it at once, and its frame goes to the next that is ready.
  for (const store::Piece& piece : state_.layout.pieces_of(tensor)) {
    Early& early = chunks_[piece.chunk];
    early.open = false;
    if (early.where == Where::kReady) early.where = Where::kNever;
  }
  for (const store::Piece& piece : state_.layout.pieces_of(tensor)) {
    throw_away(piece.chunk);
    if (!under_way(piece.chunk)) continue;
    ++*left;
    updates_.when_gradient_is_free(piece.chunk, one_less);
  }
  one_less();
}

void EarlyUpdates::renumbered(std::uint32_t group) {
  for (std::uint32_t tensor = 0; tensor < factors_.size(); ++tensor)
    if (factors_[tensor] && state_.registry.tensors()[tensor].group == group &&
        factors_[tensor] != make_factors(state_, tensor, gradient_factor_))
      return stop();
}

void EarlyUpdates::stop() {
  stopped_ = true;  // first: what is withdrawn may end at once, and make room
  while (!read_ahead_.empty()) withdraw(read_ahead_.back());
}

bool EarlyUpdates::may_hold_gradient() const {
  // Where gradients share frames one is left for the next, which would else wait for the read of a record.
  return state_.partition.spilled_gradients == 0 || updates_.gradients_in_use() + 1 < gradients_.frames();
}

void EarlyUpdates::advance() {
  if (!gradients_.failure().ok()) return;
  while (!stopped_ && begin_next()) {
  }
  if (stopped_) return;
  if (ready_.empty())
    read_next();
  else
    make_room();
}

bool EarlyUpdates::begin_next() {
  drop_unfit();
  if (ready_.empty() || !may_hold_gradient()) return false;
  const std::uint32_t chunk = ready_.front();
  Early& early = chunks_[chunk];
  if (!early.read_ahead && !updates_.has_room()) return false;
  ready_.pop_front();
  early.where = Where::kUnderWay;
  ++under_way_;
  if (std::exchange(early.read_ahead, false)) {
    std::erase(read_ahead_, chunk);
    updates_.go_on(chunk);
  } else {
    updates_.start(update_of(chunk), ended_of(chunk));
  }
  return true;
}

void EarlyUpdates::drop_unfit() {
  while (!ready_.empty()) {
    const std::uint32_t chunk = ready_.front();
    Early& early = chunks_[chunk];
    // To read a gradient back here would take a frame from one that is to come.
    if (early.where == Where::kReady && gradients_.in_frame(chunk)) return;
    ready_.pop_front();
    if (early.where != Where::kReady) continue;
    early.open = false;
    early.where = Where::kNever;
    if (early.read_ahead) withdraw(chunk);
  }
}

void EarlyUpdates::make_room() {
  // What is ready can go on, so it gets the frame of what waits: of a record that was passed over, else of the one that
  // is wanted last.
  while (!ready_.empty() && !chunks_[ready_.front()].read_ahead && !updates_.has_room() &&
         !read_ahead_.empty() && withdrawn_ < ready_.size()) {
    const auto passed_over =
        std::ranges::find_if(read_ahead_, [this](std::uint32_t chunk) { return order_.passed_over(chunk); });
    withdraw(passed_over != read_ahead_.end() ? *passed_over : read_ahead_.back());
  }
}

void EarlyUpdates::read_next() {
  while (foretold_ && !stopped_ && ready_.empty() && updates_.has_room()) {
    const std::optional<std::uint32_t> chunk = order_.next();
    if (!chunk) return;
    Early& early = chunks_[*chunk];
    const bool to_come = early.open && early.missing > 0 && early.where == Where::kNever;
    if (!to_come) continue;
    early.read_ahead = true;
    read_ahead_.push_back(*chunk);
    updates_.read_ahead(update_of(*chunk), ended_of(*chunk));
  }
}

void EarlyUpdates::withdraw(std::uint32_t chunk) {
  std::erase(read_ahead_, chunk);
  chunks_[chunk].read_ahead = false;
  chunks_[chunk].where = Where::kWithdrawn;
  ++under_way_;
  ++withdrawn_;
  updates_.give_up(chunk);
}

RecordUpdate EarlyUpdates::update_of(std::uint32_t chunk) const {
  return {.chunk = chunk, .factors = &factors_, .moment = Moment::kEarly};
}

RecordUpdates::Finished EarlyUpdates::ended_of(std::uint32_t chunk) {
  return [this, chunk](const Status& status, const std::optional<NextRecord>& written) {
    ended(chunk, status, written);
  };
}

void EarlyUpdates::ended(std::uint32_t chunk, const Status& status,
                         const std::optional<NextRecord>& written) {
  Early& early = chunks_[chunk];
  --under_way_;
  if (early.where == Where::kWithdrawn) {
    --withdrawn_;
    early.where = Where::kNever;
    if (early.open && order_.is_ready(chunk)) make_ready(chunk);  // meanwhile
    if (ended_) ended_(chunk, {});
  } else {
    if (!status.ok() && !early.given_up) stop();
    early.where = status.ok() ? Where::kMade : Where::kThrownAway;
    early.written = written;
    if (ended_) ended_(chunk, early.given_up ? Status() : status);
  }
  if (!ended_) advance();
  settle();
}

std::uint64_t EarlyUpdates::throw_away(std::uint32_t chunk) {
  Early& early = chunks_[chunk];
  if (early.read_ahead) withdraw(chunk);
  switch (early.where) {
    case Where::kReady:
      early.where = Where::kNever;
      return 0;
    case Where::kUnderWay:
      if (early.given_up) return 0;
      early.given_up = true;
      updates_.give_up(chunk);
      return 1;
    case Where::kMade:
      updates_.give_back(*early.written);
      early.where = Where::kThrownAway;
      return 1;
    case Where::kNever:
    case Where::kWithdrawn:
    case Where::kThrownAway:
      return 0;
  }
  return 0;
}

bool EarlyUpdates::guessed(std::uint32_t chunk, const StepFactors& factors) const {
  return std::ranges::all_of(state_.layout.segments_of(chunk), [&](const store::Segment& segment) {
    return factors[segment.parameter] == factors_[segment.parameter];
  });
}

void EarlyUpdates::decided(const StepFactors& factors, double gradient_factor) {
  stop();  // first: what is given up may end at once, and make room
  order_.learn();
  bool right = gradient_factor == gradient_factor_;
  for (std::size_t tensor = 0; tensor < factors.size(); ++tensor)
    if (factors[tensor] && factors_[tensor] && factors[tensor] != factors_[tensor]) right = false;
  std::uint64_t thrown_away = 0;
  for (const std::uint32_t chunk : candidates_) {
    if (!guessed(chunk, factors))
      thrown_away += throw_away(chunk);
    else if (chunks_[chunk].where == Where::kUnderWay && !chunks_[chunk].given_up)
      updates_.adopt(chunk);
  }
  judge(right ? plan::Guess::kRight : plan::Guess::kWrong, thrown_away);
}

void EarlyUpdates::skipped() {
  stop();  // as in decided()
  order_.learn();
  std::uint64_t thrown_away = 0;
  for (const std::uint32_t chunk : candidates_) thrown_away += throw_away(chunk);
  judge(plan::Guess::kWrong, thrown_away);
}

void EarlyUpdates::judge(plan::Guess guess, std::uint64_t thrown_away) {
  speculation_.decided(guess, thrown_away);
  if (thrown_away > 0) ++state_.counters.wrong_guesses;
}

std::optional<NextRecord> EarlyUpdates::take(std::uint32_t chunk) {
  Early& early = chunks_[chunk];
  switch (std::exchange(early.where, Where::kNever)) {
    case Where::kMade:
      ++kept_;
      return std::exchange(early.written, std::nullopt);
    case Where::kThrownAway:
      ++redone_;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

void EarlyUpdates::conclude() {
  state_.counters.early_updates += std::exchange(kept_, 0);
  state_.counters.redone_updates += std::exchange(redone_, 0);
}

void EarlyUpdates::drop(Done done) {
  stop();
  ended_ = nullptr;
  for (const std::uint32_t chunk : candidates_) throw_away(chunk);
  dropped_ = std::move(done);
  settle();
}

void EarlyUpdates::settle() {
  if (under_way_ == 0 && dropped_) std::exchange(dropped_, nullptr)({});
}

}  // namespace sluice::engine
