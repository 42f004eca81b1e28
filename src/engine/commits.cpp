#include "engine/commits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice::engine {
namespace {

/// Records in memory that are hashed and written side by side: enough to fill a drive's queue, few enough that reads
/// find room between their pieces.
constexpr std::uint32_t kSavesAtOnce = 4;

/// How much sooner a record must be written on another drive than at home to go there: homes are dealt so that reads
/// in the order of the step keep all drives busy.
constexpr double kWorthMoving = 1.25;

}  // namespace

Commits::Commits(State& state, Records& records, CommitOptions options)
    : state_(state), records_(records), options_(std::move(options)), saving_(state.chunks.size()) {
  if (state_.store != nullptr) transfers_.resize(state_.store->drive_count());
}

void Commits::adopt(const std::vector<store::HeldCommit>& kept) {
  for (const store::HeldCommit& held : kept) {
    const auto place = std::ranges::find_if(held.places, [](const auto& at) { return at.has_value(); });
    kept_.push_back({held.record.number, place->value(), held.record.chunks});
  }
  if (!kept_.empty()) next_number_ = kept_.back().number + 1;
}

std::uint64_t Commits::begin(Request request, std::function<void(CommitResult)> done) {
  in_flight_ = true;
  begin_ns_ = options_.now_ns();
  done_ = std::move(done);
  const std::uint64_t number = next_number_++;
  result_ = {.identity = {.number = number, .steps = state_.step}, .waits = request.waits};
  transfer_failure_ = {};
  retained_.assign(state_.chunks.size(), false);
  if (!request.refusal.ok()) {
    drop(std::move(request.refusal));
    exchange();
    return number;
  }
  const store::Superblock& superblock = state_.store->superblock();
  record_ = {.volume_id = superblock.volume_id,
             .store_id = superblock.store_id,
             .rank = superblock.rank,
             .world = superblock.world,
             .number = number,
             .steps = state_.step,
             .seed = state_.seed,
             .groups = {},
             .step_counts = {},
             .chunks = std::vector<store::CommittedChunk>(state_.chunks.size()),
             .user_bytes = std::move(request.user_bytes)};
  for (const Group& group : state_.registry.groups())
    record_.groups.push_back({group.options.name, group.options.optimizer});
  for (const Tensor& tensor : state_.registry.tensors()) record_.step_counts.push_back(tensor.step_count);
  for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk) {
    if (state_.chunks[chunk].changed)
      plan_save(chunk);
    else
      take_stored(chunk);
  }
  save_more();
  return number;
}

// Every save has its slot before anything that goes on beside the commit can take one: chunks of a class share theirs,
// and a step that finds none waits for the commit, which must not wait for the step.
void Commits::plan_save(std::uint32_t chunk) {
  // What its slot holds is outdated: unless a commit names it, it is as good as free.
  Chunk& of = state_.chunks[chunk];
  if (of.current && !state_.store->slot_shared(chunk, *of.current)) {
    state_.store->release_slot(chunk, *of.current);
    of.current.reset();
  }
  const Result<io::Place> slot = take_slot(chunk, InPlace::kNo);
  if (!slot.ok()) return drop(slot.status());
  to_save_.push_back({chunk, *slot});
  saving_[chunk] = true;
}

void Commits::take_stored(std::uint32_t chunk) {
  const Chunk& of = state_.chunks[chunk];
  Status retained = state_.store->retain_slot(chunk, *of.current);
  if (!retained.ok()) return drop(std::move(retained));
  retained_[chunk] = true;
  record_.chunks[chunk] = {*of.current, of.checksums};
}

void Commits::drop(Status cause) {
  if (cause.ok() || !result_.status.ok()) return;
  result_.outcome = CommitOutcome::kDropped;
  result_.status = std::move(cause);
}

void Commits::save_more() {
  while (result_.status.ok() && !to_save_.empty() && saves_ < kSavesAtOnce) {
    const Save next = to_save_.front();
    to_save_.pop_front();
    ++saves_;
    save(next);
  }
  if (saves_ > 0) return;
  if (result_.status.ok()) return flush_state();
  for (const Save& given_up : std::exchange(to_save_, {})) {
    state_.store->release_slot(given_up.chunk, given_up.slot);
    saved(given_up.chunk, result_.status);
  }
  exchange();
}

void Commits::save(const Save& next) {
  const std::uint32_t chunk = next.chunk;
  const PlaneRange all{0, state_.class_of(chunk).planes.size()};
  hash_planes(state_, chunk, all, state_.chunks[chunk].resident,
              [this, chunk, slot = next.slot](const PlaneChecksums& checksums) {
                record_.chunks[chunk].checksums = checksums;
                write_saved(chunk, slot);
              });
}

void Commits::write_saved(std::uint32_t chunk, io::Place slot) {
  records_.save(chunk, slot, state_.chunks[chunk].resident, [this, chunk, slot](Status status) {
    --saves_;
    Chunk& of = state_.chunks[chunk];
    if (status.ok()) {
      if (of.current) state_.store->release_slot(chunk, *of.current);
      of.current = slot;
      of.checksums = record_.chunks[chunk].checksums;
      of.changed = false;
      take_stored(chunk);
    } else {
      state_.store->release_slot(chunk, slot);
    }
    saved(chunk, std::move(status));
    save_more();
  });
}

void Commits::saved(std::uint32_t chunk, Status status) {
  drop(std::move(status));
  saving_[chunk] = false;
  std::vector<std::function<void()>> ready;
  std::erase_if(save_waiters_, [&](auto& waiter) {
    if (waiter.first != chunk) return false;
    ready.push_back(std::move(waiter.second));
    return true;
  });
  end_stall();
  for (const auto& then : ready) then();
}

void Commits::flush_state() { submit_to_all({.op = io::Op::kFlush}, &Commits::write_record); }

void Commits::write_record() {
  if (!transfer_failure_.ok()) return exchange();
  const std::uint64_t bytes = store::encode(record_, options_.buffer);
  const std::uint64_t padded_bytes = round_up(bytes, state_.store->superblock().grid_bytes);
  std::ranges::fill(options_.buffer.subspan(bytes, padded_bytes - bytes), std::byte{0});
  place_ = free_place();
  state_.counters.commit_record_bytes_written += padded_bytes * state_.store->drive_count();
  submit_to_all({.op = io::Op::kWrite, .offset = state_.store->place_offset(place_), .bytes = padded_bytes},
                &Commits::flush_record);
}

void Commits::flush_record() {
  if (!transfer_failure_.ok()) return exchange();
  submit_to_all({.op = io::Op::kFlush}, &Commits::exchange);
}

void Commits::submit_to_all(const Movement& movement, Next next) {
  next_ = next;
  for (std::uint32_t drive = 0; drive < transfers_.size(); ++drive) submit(drive, movement);
}

void Commits::submit(std::uint32_t drive, const Movement& movement) {
  Transfer& transfer = transfers_[drive];
  transfer = {};
  transfer.commits = this;
  transfer.on_done = &Commits::finished;
  transfer.op = movement.op;
  transfer.priority = io::Priority::kDemand;
  transfer.drive = drive;
  transfer.file = &state_.store->data(drive);
  transfer.buffer = options_.buffer.data();
  transfer.bytes = movement.bytes;
  transfer.offset = movement.offset;
  ++transfers_left_;
  state_.queue->submit(transfer);
}

void Commits::finished(io::Transfer& transfer) {
  Commits& commits = *static_cast<Transfer&>(transfer).commits;
  if (!transfer.status.ok() && commits.transfer_failure_.ok())
    commits.transfer_failure_ = transfer.status.with_context(
        transfer.op == io::Op::kFlush ? "flush for a commit" : "write a commit record");
  if (--commits.transfers_left_ == 0) (commits.*commits.next_)();
}

void Commits::exchange() {
  if (!transfer_failure_.ok()) {
    result_.outcome = CommitOutcome::kBroken;
    result_.status = transfer_failure_;
  }
  options_.exchange->run(std::move(result_), [this](CommitResult result) { agreed(std::move(result)); });
}

void Commits::agreed(CommitResult result) {
  result_ = std::move(result);
  if (result_.outcome == CommitOutcome::kDurable) return keep();
  // What a broken commit may have made durable is never written over, and stays for the next run to look at; a
  // dropped one has no claim on its slots.
  if (result_.outcome == CommitOutcome::kBroken) state_.store->keep();
  if (result_.outcome == CommitOutcome::kDropped)
    for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk)
      if (retained_[chunk]) state_.store->release_slot(chunk, record_.chunks[chunk].place);
  ++state_.counters.failed_commits;
  conclude();
}

void Commits::keep() {
  kept_.push_back({record_.number, place_, std::move(record_.chunks)});
  if (kept_.size() > options_.keep_commits) {
    for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk)
      state_.store->release_slot(chunk, kept_.front().chunks[chunk].place);
    kept_.pop_front();
  }
  state_.store->keep();
  ++state_.counters.commits;
  state_.counters.steps_since_commit = state_.step - record_.steps;
  if (state_.store->superblock().committed) return conclude();
  drives_marked_ = 0;
  mark_next_drive();
}

// Not flushed: the next commit does that, and without the mark a store merely passes for one that was never finished
// if all copies of its record are lost.
void Commits::mark_next_drive() {
  if (!transfer_failure_.ok()) return conclude();
  if (drives_marked_ == transfers_.size()) {
    state_.store->note_committed();
    return conclude();
  }
  const std::uint32_t drive = drives_marked_++;
  const std::uint64_t bytes = state_.store->superblock().grid_bytes;
  state_.store->encode_superblock(drive, store::Committed::kYes, options_.buffer.first(bytes));
  next_ = &Commits::mark_next_drive;
  submit(drive, {.op = io::Op::kWrite, .offset = 0, .bytes = bytes});
}

void Commits::conclude() {
  in_flight_ = false;
  state_.counters.commit_ns += static_cast<std::uint64_t>(options_.now_ns() - begin_ns_);
  std::exchange(done_, nullptr)(result_);
  for (const SlotWaiter& waiter : std::exchange(slot_waiters_, {}))
    waiter.ready(take_slot(waiter.chunk, waiter.in_place));
  end_stall();
  for (const auto& then : std::exchange(after_, {})) then();
}

std::uint32_t Commits::free_place() const {
  std::uint32_t place = 0;
  while (std::ranges::find(kept_, place, &Version::place) != kept_.end()) ++place;
  return place;
}

void Commits::after(std::function<void()> then) {
  if (!in_flight_) return then();
  after_.push_back(std::move(then));
}

Result<io::Place> Commits::take_slot(std::uint32_t chunk, InPlace in_place) {
  const std::optional<io::Place>& current = state_.chunks[chunk].current;
  if (in_place == InPlace::kAllowed && !state_.store->slot_shared(chunk, *current)) return *current;
  if (const std::optional<io::Place> slot = free_slot(chunk)) return *slot;
  const std::string what = "a slot for " + state_.describe(chunk);
  if (!state_.stepped(chunk)) {
    SLUICE_ASSIGN_OR_RETURN(const io::Place grown, state_.store->grow_slot(chunk));
    state_.counters.nvme_reserved_bytes = state_.store->reserved_bytes();
    return grown;
  }
  return result_.status.ok() ? Status(Code::kInternal, what + ": none is free")
                             : result_.status.with_context(what);
}

std::optional<io::Place> Commits::free_slot(std::uint32_t chunk) {
  const std::uint64_t bytes = state_.chunk_layout(chunk).record.bytes;
  std::optional<std::uint32_t> chosen;
  const auto consider = [&](std::uint32_t drive, double advantage) {
    if (!state_.store->offers_slot(chunk, drive)) return;
    if (!chosen ||
        state_.loads->seconds_until(drive, bytes) * advantage < state_.loads->seconds_until(*chosen, bytes))
      chosen = drive;
  };
  const std::uint32_t home = state_.store->home_of(chunk);
  consider(home, 1);
  for (std::uint32_t drive = 0; drive < state_.store->drive_count(); ++drive)
    if (drive != home) consider(drive, chosen == home ? kWorthMoving : 1);
  return chosen ? std::optional(state_.store->acquire_slot(chunk, *chosen)) : std::nullopt;
}

void Commits::find_target(std::uint32_t chunk, InPlace in_place, SlotReady ready, Waiter waiter) {
  Result<io::Place> slot = take_slot(chunk, in_place);
  if (slot.ok() || !in_flight_ || !state_.stepped(chunk)) return ready(std::move(slot));
  if (waiter == Waiter::kTrainer) begin_stall();
  slot_waiters_.push_back({chunk, in_place, std::move(ready)});
}

void Commits::stop_waiting(std::uint32_t chunk) {
  const auto waiter = std::ranges::find(slot_waiters_, chunk, &SlotWaiter::chunk);
  if (waiter == slot_waiters_.end()) return;
  const SlotReady ready = std::move(waiter->ready);
  slot_waiters_.erase(waiter);
  end_stall();
  ready(Status(Code::kAborted, "the wait for a slot was given up"));
}

void Commits::trainer_waits() {
  if (!slot_waiters_.empty()) begin_stall();
}

void Commits::when_saved(std::uint32_t chunk, std::function<void()> then) {
  if (!saving_[chunk]) return then();
  begin_stall();
  save_waiters_.emplace_back(chunk, std::move(then));
}

void Commits::begin_stall() {
  if (!stall_begin_ns_) stall_begin_ns_ = options_.now_ns();
}

void Commits::end_stall() {
  if (!stall_begin_ns_ || !slot_waiters_.empty() || !save_waiters_.empty()) return;
  state_.counters.commit_wait_ns +=
      static_cast<std::uint64_t>(options_.now_ns() - *std::exchange(stall_begin_ns_, std::nullopt));
}

void Commits::flush_twice(Done done) {
  flushed_ = std::move(done);
  transfer_failure_ = {};
  submit_to_all({.op = io::Op::kFlush}, &Commits::flush_again);
}

void Commits::flush_again() { submit_to_all({.op = io::Op::kFlush}, &Commits::flushed); }

void Commits::flushed() { std::exchange(flushed_, nullptr)(transfer_failure_); }

void Commits::find_copy(std::uint32_t chunk, PlaneRange planes, std::byte* record,
                        std::function<void(std::string)> done) {
  look_at_copy(kept_.size(), chunk, planes, record, std::move(done));
}

void Commits::look_at_copy(std::size_t versions, std::uint32_t chunk, PlaneRange planes, std::byte* record,
                           std::function<void(std::string)> done) {
  // Newest first, and only where the commit's copy is not the damaged one itself.
  while (versions > 0 && kept_[versions - 1].chunks[chunk].place == state_.chunks[chunk].current) --versions;
  if (versions == 0) return done(options_.keep_commits > 0 ? "; no kept commit has a good copy" : "");
  const Version& version = kept_[versions - 1];
  const store::CommittedChunk copy = version.chunks[chunk];
  const std::uint64_t number = version.number;
  const auto next = [this, versions, chunk, planes, record, done] {
    look_at_copy(std::min(versions - 1, kept_.size()), chunk, planes, record, done);
  };
  records_.read_from(chunk, copy.place, planes, record, [=, this](Status status) {
    if (!status.ok()) return next();
    hash_planes(state_, chunk, planes, record, [=](const PlaneChecksums& checksums) {
      if (!equal_planes(planes, checksums, copy.checksums)) return next();
      done(fmt::format("; commit {} has a good copy (recover_commit = {})", number, number));
    });
  });
}

}  // namespace sluice::engine
