#include <fmt/format.h>

#include <utility>

#include "engine/core.hpp"

namespace sluice::engine {

Status Core::take_unreported() {
  // Ranks hear of a failure at different moments: only a call that all of them make can tell all of them.
  if (communicator_->world() > 1) return {};
  std::lock_guard lock(mutex_);
  const auto failed = std::exchange(unreported_, nullptr);
  return failed ? *failed->outcome : Status();
}

Status Core::await_commits() {
  return loop().call([&](Ticket& ticket) { running_->commits->after([&] { loop().complete(ticket, {}); }); });
}

Result<std::shared_ptr<CommitState>> Core::commit(std::span<const std::byte> user_bytes, CommitMode mode) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  if (options_.keep_commits == 0)
    return Status(Code::kFailedPrecondition, "commit() with keep_commits = 0: the store is scratch");
  const std::int64_t begin_ns = parts_.now_ns();
  auto state = std::make_shared<CommitState>();
  state->core = weak_from_this();
  {
    std::lock_guard no_access(access_mutex_);
    Status refusal = between_passes();
    if (user_bytes.size() > options_.max_user_bytes)
      refusal =
          Status(Code::kInvalidArgument, fmt::format("{} user bytes, accepted: up to max_user_bytes = {}",
                                                     user_bytes.size(), options_.max_user_bytes));
    // With several ranks a refused commit takes part, so that the others hear of it.
    if (!refusal.ok() && communicator_->world() == 1) return refusal;
    SLUICE_RETURN_IF_ERROR(await_commits());
    {
      std::lock_guard lock(mutex_);
      if (const auto failed = std::exchange(unreported_, nullptr)) return *failed->outcome;
      if (!sticky_.ok()) return sticky_;
    }
    SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
      state->number = running_->commits->begin(
          {.user_bytes = {user_bytes.begin(), user_bytes.end()},
           .refusal = std::move(refusal),
           .waits = mode == CommitMode::kWait ? CallerWaits::kYes : CallerWaits::kNo},
          [this, state](const CommitResult& result) { conclude_commit(state, result); });
      loop().complete(ticket, {});
    }));
  }
  const Status status = mode == CommitMode::kWait ? wait(state) : Status();
  state_.counters.commit_wait_ns += static_cast<std::uint64_t>(parts_.now_ns() - begin_ns);
  if (!status.ok()) return status;
  return state;
}

void Core::conclude_commit(const std::shared_ptr<CommitState>& commit, const CommitResult& result) {
  Status status = result.status.with_context(fmt::format("commit {}", result.identity.number));
  const bool broken = result.outcome == CommitOutcome::kBroken;
  {
    std::lock_guard lock(mutex_);
    if (broken && sticky_.ok()) sticky_ = status;
    // Where all ranks wait in commit() it tells all of them.
    if (!status.ok() && result.waits == CallerWaits::kNo) unreported_ = commit;
    commit->outcome = status;
  }
  commits_concluded_.notify_all();
  if (broken) (void)stick(std::move(status));
}

Status Core::wait(const std::shared_ptr<CommitState>& commit) {
  if (forked()) return Status(Code::kForked, "this engine belongs to the parent process");
  // A commit is concluded whatever becomes of the engine: close() waits for it too.
  if (parts_.loop == LoopMode::kInline && !done(*commit)) SLUICE_RETURN_IF_ERROR(await_commits());
  std::unique_lock lock(mutex_);
  commits_concluded_.wait(lock, [&] { return commit->outcome.has_value(); });
  if (unreported_ == commit && communicator_->world() == 1) unreported_.reset();
  return *commit->outcome;
}

bool Core::done(const CommitState& commit) const {
  if (forked()) return true;  // nothing goes on here
  std::lock_guard lock(mutex_);
  return commit.outcome.has_value();
}

Result<double> Core::flush_twice() {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  if (state_.store == nullptr) return Status(Code::kFailedPrecondition, "flushes need a store");
  std::lock_guard no_access(access_mutex_);
  SLUICE_RETURN_IF_ERROR(between_passes());
  const std::int64_t begin_ns = parts_.now_ns();
  Status flushed = loop().call([&](Ticket& ticket) {
    running_->commits->after([&] {
      running_->commits->flush_twice([&](Status status) { loop().complete(ticket, std::move(status)); });
    });
  });
  // What the drives kept is not known, as after a commit's.
  if (!flushed.ok()) return stick(std::move(flushed));
  return static_cast<double>(parts_.now_ns() - begin_ns) * 1e-9;
}

}  // namespace sluice::engine
