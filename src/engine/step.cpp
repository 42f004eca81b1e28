#include "engine/step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice::engine {
namespace {

/// Records in memory that are updated side by side: each keeps all compute threads busy, the second hides the
/// hand-over.
constexpr std::uint32_t kResidentsAtOnce = 2;

}  // namespace

Step::Step(State& state, Records& records, Commits& commits, Gradients& gradients, memory::FramePool& frames,
           Undo undo)
    : state_(state),
      records_(records),
      commits_(commits),
      gradients_(gradients),
      frames_(frames),
      undo_(undo) {}

bool Step::touched(std::uint32_t chunk) const {
  return std::ranges::any_of(state_.layout.segments_of(chunk), [&](const store::Segment& segment) {
    return factors_[segment.parameter].has_value();
  });
}

void Step::stream(StepFactors factors, StepMode mode, Done done) {
  factors_ = std::move(factors);
  mode_ = mode;
  done_ = std::move(done);
  status_ = {};
  order_.clear();
  residents_.clear();
  written_.clear();
  next_ = 0;
  for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk) {
    if (!touched(chunk)) continue;
    (state_.chunks[chunk].resident != nullptr ? residents_ : order_).push_back(chunk);
  }
  // What is in frames makes room for what has to come back.
  std::ranges::stable_partition(order_, [&](std::uint32_t chunk) { return gradients_.in_frame(chunk); });
  if (mode_ == StepMode::kFull) {
    spilled_.clear();
    std::ranges::copy_if(order_, std::back_inserter(spilled_),
                         [&](std::uint32_t chunk) { return gradients_.spilled(chunk); });
  }
  advance();
}

void Step::replay(StepMode mode, Done done) {
  if (mode == StepMode::kIoOnly)
    for (std::uint32_t chunk : spilled_) gradients_.replay_spilled(chunk);
  stream(StepFactors(factors_), mode, std::move(done));
}

void Step::advance() {
  while (status_.ok() && next_ < order_.size()) {
    std::byte* frame = frames_.try_acquire();
    if (frame == nullptr) return;
    start(order_[next_++], frame);
  }
  if (in_flight_ == 0 && done_) std::exchange(done_, nullptr)(status_);
}

void Step::start(std::uint32_t chunk, std::byte* frame) {
  if (free_jobs_.empty()) free_jobs_.push_back(&jobs_.emplace_back());
  Job& job = *free_jobs_.back();
  free_jobs_.pop_back();
  job = {};
  job.chunk = chunk;
  job.record = frame;
  job.reads_left = 3;  // record, gradient and this function
  ++in_flight_;
  if (mode_ == StepMode::kComputeOnly) {
    arrived(job, {});
  } else {
    records_.read(chunk, {0, state_.class_of(chunk).planes.size()}, frame, io::Priority::kReadAhead,
                  [this, &job](Status status) { arrived(job, std::move(status)); });
  }
  if (mode_ == StepMode::kIoOnly && !gradients_.present(chunk)) {
    arrived(job, {});
  } else {
    gradients_.acquire(chunk, [this, &job](Status status, std::byte* plane) {
      job.gradient = plane;
      arrived(job, std::move(status));
    });
  }
  arrived(job, {});
}

void Step::arrived(Job& job, Status status) {
  if (!status.ok() && job.status.ok()) job.status = std::move(status);
  if (--job.reads_left > 0) return;
  if (!job.status.ok() || !status_.ok()) return end(job);
  if (mode_ == StepMode::kIoOnly) return find_target(job);
  update(job);
}

void Step::update(Job& job) {
  update_chunk(state_,
               {.chunk = job.chunk, .record = job.record, .gradient = job.gradient, .factors = &factors_},
               [this, &job](const UpdateResult& result) {
                 job.result = result;
                 if (mode_ == StepMode::kComputeOnly) return end(job);
                 if (result.verified) return find_target(job);
                 // Its planes are of no use any more, so a copy may be read over them.
                 commits_.find_copy(job.chunk, {0, state_.class_of(job.chunk).planes.size()}, job.record,
                                    [this, &job](const std::string& copy) {
                                      job.status = checksum_mismatch(state_, job.chunk, "state", copy);
                                      end(job);
                                    });
               });
}

void Step::find_target(Job& job) {
  if (job.gradient != nullptr) {
    gradients_.consume(job.chunk);
    job.gradient = nullptr;
  }
  const auto in_place = undo_ == Undo::kOff ? Commits::InPlace::kAllowed : Commits::InPlace::kNo;
  commits_.find_target(job.chunk, in_place, [this, &job](Result<io::Place> slot) {
    if (slot.ok()) return write(job, *slot);
    job.status = slot.status();
    end(job);
  });
}

void Step::write(Job& job, io::Place target) {
  records_.write(job.chunk, target, job.record, [this, &job, target](Status status) {
    if (status.ok()) {
      written_.push_back({job.chunk, target, job.result});
    } else {
      if (target != state_.chunks[job.chunk].current) state_.store->release_slot(job.chunk, target);
      job.status = std::move(status);
    }
    end(job);
  });
}

void Step::end(Job& job) {
  if (job.gradient != nullptr) gradients_.consume(job.chunk);
  if (status_.ok() && !job.status.ok()) status_ = job.status;
  frames_.release(job.record);
  free_jobs_.push_back(&job);
  --in_flight_;
  advance();
}

void Step::keep() {
  for (const Written& written : written_) {
    Chunk& chunk = state_.chunks[written.chunk];
    if (written.slot != chunk.current) state_.store->release_slot(written.chunk, *chunk.current);
    chunk.current = written.slot;
    chunk.checksums = written.result.checksums;
    chunk.overflowed = written.result.overflowed;
  }
  written_.clear();
}

void Step::discard() {
  for (const Written& written : written_)
    if (written.slot != state_.chunks[written.chunk].current)
      state_.store->release_slot(written.chunk, written.slot);
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
