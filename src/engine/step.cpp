#include "engine/step.hpp"

#include <algorithm>
#include <utility>

namespace sluice::engine {
namespace {

/// Records in memory that are updated side by side: each keeps all compute threads busy, the second hides the
/// hand-over.
constexpr std::uint32_t kResidentsAtOnce = 2;

}  // namespace

Step::Step(State& state, RecordUpdates& updates, EarlyUpdates& early, Commits& commits, Gradients& gradients)
    : state_(state), updates_(updates), early_(early), commits_(commits), gradients_(gradients) {}

bool Step::touched(std::uint32_t chunk) const {
  return std::ranges::any_of(state_.layout.segments_of(chunk), [&](const store::Segment& segment) {
    return factors_[segment.parameter].has_value();
  });
}

void Step::begin(StepMode mode, Done done) {
  mode_ = mode;
  done_ = std::move(done);
  status_ = {};
  order_.clear();
  residents_.clear();
  written_.clear();
  next_ = 0;
}

void Step::stream(StepFactors factors, Done done) {
  factors_ = std::move(factors);
  begin(StepMode::kFull, std::move(done));
  spilled_.clear();
  kept_early_.assign(state_.chunks.size(), false);
  for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk) {
    if (!touched(chunk)) continue;
    if (state_.chunks[chunk].resident != nullptr)
      residents_.push_back(chunk);
    else if (!early_.under_way(chunk))
      take_or_update(chunk);
  }
  // What is in frames makes room for what has to come back.
  std::ranges::stable_partition(order_, [&](std::uint32_t chunk) { return gradients_.in_frame(chunk); });
  early_.when_ended([this](std::uint32_t chunk, const Status& status) {
    if (status.ok() && touched(chunk)) take_or_update(chunk);
    fail(status);
    advance();
  });
  commits_.trainer_waits();
  advance();
}

void Step::take_or_update(std::uint32_t chunk) {
  const std::optional<NextRecord> early = early_.take(chunk);
  if (!early) return order_.push_back(chunk);
  written_.push_back(*early);
  kept_early_[chunk] = true;
  gradients_.discard(chunk);
}

void Step::replay(StepMode mode, Replayed chunks, Done done) {
  begin(mode, std::move(done));
  for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk) {
    if (!touched(chunk)) continue;
    if (state_.chunks[chunk].resident != nullptr)
      residents_.push_back(chunk);
    else if (chunks == Replayed::kAll || !kept_early_[chunk])
      order_.push_back(chunk);
  }
  if (mode == StepMode::kIoOnly)
    for (const std::uint32_t chunk : spilled_) gradients_.replay_spilled(chunk);
  std::ranges::stable_partition(order_, [&](std::uint32_t chunk) { return gradients_.in_frame(chunk); });
  advance();
}

void Step::advance() {
  while (status_.ok() && next_ < order_.size() && updates_.has_room()) {
    const std::uint32_t chunk = order_[next_++];
    ++in_flight_;
    if (mode_ == StepMode::kFull && gradients_.spilled(chunk)) spilled_.push_back(chunk);
    updates_.start(
        {.chunk = chunk, .factors = &factors_, .mode = mode_},
        [this](const Status& status, const std::optional<NextRecord>& written) { ended(status, written); });
  }
  const bool all_started = !status_.ok() || next_ == order_.size();
  if (all_started && in_flight_ == 0 && !early_.any_under_way() && done_)
    std::exchange(done_, nullptr)(status_);
}

void Step::ended(const Status& status, const std::optional<NextRecord>& written) {
  --in_flight_;
  if (written) written_.push_back(*written);
  fail(status);
  advance();
}

void Step::fail(const Status& status) {
  if (status.ok() || !status_.ok()) return;
  status_ = status;
  updates_.give_up_all();
}

void Step::keep() {
  for (const NextRecord& written : written_) updates_.keep(written);
  written_.clear();
}

void Step::discard() {
  for (const NextRecord& written : written_) updates_.give_back(written);
  written_.clear();
}

void Step::update_resident(Done done) {
  done_ = std::move(done);
  next_resident_ = 0;
  update_next_resident();
}

void Step::update_next_resident() {
  while (next_resident_ < residents_.size() && residents_in_flight_ < kResidentsAtOnce) {
    const std::uint32_t chunk = residents_[next_resident_++];
    ++residents_in_flight_;
    commits_.when_saved(chunk, [this, chunk] { update_one_resident(chunk); });
  }
  if (residents_in_flight_ == 0 && next_resident_ == residents_.size() && done_)
    std::exchange(done_, nullptr)({});
}

void Step::update_one_resident(std::uint32_t chunk) {
  state_.chunks[chunk].changed = true;
  // Where there are residents every gradient has a frame, so this neither waits nor fails.
  gradients_.acquire(chunk, [this, chunk](Status, std::byte* plane) {
    update_chunk(state_,
                 {.chunk = chunk,
                  .record = state_.chunks[chunk].resident,
                  .gradient = plane,
                  .factors = &factors_,
                  .checksums = Checksums::kNone},
                 [this, chunk](const UpdateResult& result) {
                   state_.chunks[chunk].overflowed = result.overflowed;
                   gradients_.consume(chunk);
                   --residents_in_flight_;
                   update_next_resident();
                 });
  });
}

}  // namespace sluice::engine
