#include "engine/record_updates.hpp"

#include <algorithm>
#include <utility>

namespace sluice::engine {

RecordUpdates::RecordUpdates(State& state, Records& records, Commits& commits, Gradients& gradients,
                             memory::FramePool& frames, Undo undo)
    : state_(state),
      records_(records),
      commits_(commits),
      gradients_(gradients),
      frames_(frames),
      undo_(undo) {}

RecordUpdates::Job& RecordUpdates::take_job() {
  const auto idle = std::ranges::find(jobs_, false, &Job::active);
  return idle != jobs_.end() ? *idle : jobs_.emplace_back();
}

RecordUpdates::Job* RecordUpdates::find(std::uint32_t chunk) {
  const auto found = std::ranges::find_if(
      jobs_, [chunk](const Job& job) { return job.active && job.update.chunk == chunk; });
  return found != jobs_.end() ? &*found : nullptr;
}

void RecordUpdates::read_ahead(const RecordUpdate& update, Finished finished) {
  begin(update, std::move(finished), io::Priority::kBackground);
}

void RecordUpdates::begin(const RecordUpdate& update, Finished finished, io::Priority priority) {
  Job& job = take_job();
  job = {};
  job.update = update;
  job.finished = std::move(finished);
  job.active = job.held_back = true;
  job.record = frames_.try_acquire();
  job.awaited = 3;
  if (update.mode == StepMode::kComputeOnly) return arrived(job, {});
  records_.read(update.chunk, {0, state_.class_of(update.chunk).planes.size()}, job.record, priority,
                [this, &job](Status status) { arrived(job, std::move(status)); });
}

void RecordUpdates::go_on(std::uint32_t chunk) {
  Job& job = *find(chunk);
  job.held_back = false;
  if (job.update.mode == StepMode::kIoOnly && !gradients_.present(chunk)) {
    arrived(job, {});
  } else {
    gradients_.acquire(chunk, [this, &job](Status status, std::byte* plane) {
      job.gradient = plane;
      arrived(job, std::move(status));
    });
  }
  arrived(job, {});
}

void RecordUpdates::start(const RecordUpdate& update, Finished finished) {
  begin(update, std::move(finished), io::Priority::kReadAhead);
  go_on(update.chunk);
}

void RecordUpdates::arrived(Job& job, Status status) {
  if (!status.ok() && job.status.ok()) job.status = std::move(status);
  --job.awaited;
  if (job.held_back ? !job.given_up : job.awaited > 0) return;
  if (!job.status.ok() || job.given_up) return end(job);
  if (job.update.mode == StepMode::kIoOnly) return find_target(job);
  compute(job);
}

void RecordUpdates::compute(Job& job) {
  const std::uint32_t chunk = job.update.chunk;
  update_chunk(
      state_, {.chunk = chunk, .record = job.record, .gradient = job.gradient, .factors = job.update.factors},
      [this, &job, chunk](const UpdateResult& result) {
        job.result = result;
        if (job.update.mode == StepMode::kComputeOnly) return end(job);
        if (result.verified) return find_target(job);
        // Its planes are of no use any more, so a copy may be read over them.
        commits_.find_copy(chunk, {0, state_.class_of(chunk).planes.size()}, job.record,
                           [this, &job](const std::string& copy) {
                             job.status = checksum_mismatch(state_, job.update.chunk, "state", copy);
                             end(job);
                           });
      });
}

void RecordUpdates::find_target(Job& job) {
  let_go(job);
  if (job.given_up) return end(job);
  const auto in_place = undo_ == Undo::kOff ? Commits::InPlace::kAllowed : Commits::InPlace::kNo;
  const auto waiter =
      job.update.moment == Moment::kEarly ? Commits::Waiter::kNobody : Commits::Waiter::kTrainer;
  const auto ready = [this, &job](Result<io::Place> slot) {
    if (slot.ok()) return write(job, *slot);
    job.status = slot.status();
    end(job);
  };
  commits_.find_target(job.update.chunk, in_place, ready, waiter);
}

void RecordUpdates::write(Job& job, io::Place target) {
  job.written = {job.update.chunk, target, job.result};
  if (job.given_up) return end(job);
  records_.write(job.update.chunk, target, job.record, [this, &job](Status status) {
    job.status = std::move(status);
    end(job);
  });
}

void RecordUpdates::let_go(Job& job) {
  job.gradient_free = true;
  if (job.gradient != nullptr) {
    job.gradient = nullptr;
    if (job.update.moment == Moment::kEarly)
      gradients_.release(job.update.chunk, Gradients::NextUse::kUnlikely);
    else
      gradients_.consume(job.update.chunk);
  }
  for (const auto& then : std::exchange(job.waiting, {})) then();
}

void RecordUpdates::end(Job& job) {
  let_go(job);
  if (job.given_up && job.status.ok()) job.status = Status(Code::kAborted, "the update was given up");
  if (job.written && !job.status.ok()) {
    give_back(*job.written);
    job.written.reset();
  }
  frames_.release(job.record);
  job.active = false;
  const Finished finished = std::move(job.finished);
  const std::optional<NextRecord> written = job.written;
  finished(std::move(job.status), written);
}

void RecordUpdates::give_up(std::uint32_t chunk) {
  Job* job = find(chunk);
  if (job == nullptr) return;
  job->given_up = true;
  const bool record_is_read = job->awaited == 2;
  if (job->held_back && record_is_read) return end(*job);
  commits_.stop_waiting(chunk);
}

void RecordUpdates::give_up_all() {
  std::vector<std::uint32_t> chunks;
  for (Job& job : jobs_) {
    if (!job.active) continue;
    job.given_up = true;
    chunks.push_back(job.update.chunk);
  }
  // After the flags: whoever is told that one has ended may look at the others, or begin new ones.
  for (const std::uint32_t chunk : chunks) give_up(chunk);
}

void RecordUpdates::adopt(std::uint32_t chunk) {
  Job& job = *find(chunk);
  job.update.moment = Moment::kDecided;
  if (job.gradient_free) gradients_.discard(chunk);
}

void RecordUpdates::when_gradient_is_free(std::uint32_t chunk, std::function<void()> then) {
  Job* job = find(chunk);
  if (job == nullptr || job->held_back || job->gradient_free) return then();
  job->waiting.push_back(std::move(then));
}

void RecordUpdates::keep(const NextRecord& written) {
  Chunk& chunk = state_.chunks[written.chunk];
  if (written.slot != chunk.current) state_.store->release_slot(written.chunk, *chunk.current);
  chunk.current = written.slot;
  chunk.checksums = written.result.checksums;
  chunk.overflowed = written.result.overflowed;
}

void RecordUpdates::give_back(const NextRecord& written) {
  if (written.slot != state_.chunks[written.chunk].current)
    state_.store->release_slot(written.chunk, written.slot);
}

}  // namespace sluice::engine
