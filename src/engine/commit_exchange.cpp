#include "engine/commit_exchange.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "memory/thread.hpp"

namespace sluice::engine {
namespace {

/// What a rank says. Shape: exchanged as bytes.
struct Word {
  std::uint64_t outcome = 0;
  std::uint64_t waits = 0;
  std::uint64_t number = 0;
  std::uint64_t steps = 0;
};

}  // namespace

CommitExchange::CommitExchange(std::shared_ptr<Communicator> communicator,
                               std::function<void(std::function<void()>)> post)
    : communicator_(std::move(communicator)), post_(std::move(post)) {}

CommitExchange::~CommitExchange() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status CommitExchange::start() {
  if (communicator_->world() == 1) return {};
  SLUICE_ASSIGN_OR_RETURN(thread_, memory::start_thread("sluice-commit", [this] { work(); }));
  return {};
}

void CommitExchange::run(CommitResult own, std::function<void(CommitResult)> done) {
  if (communicator_->world() == 1) return done(std::move(own));
  {
    std::lock_guard lock(mutex_);
    job_ = Job{std::move(own), std::move(done)};
  }
  changed_.notify_all();
}

void CommitExchange::abort(const Status& cause) const {
  if (communicator_->world() > 1) communicator_->abort(cause);
}

CommitResult CommitExchange::exchange(CommitResult own) const {
  std::vector<Word> words(communicator_->world());
  words[communicator_->rank()] = {.outcome = static_cast<std::uint64_t>(own.outcome),
                                  .waits = static_cast<std::uint64_t>(own.waits),
                                  .number = own.identity.number,
                                  .steps = own.identity.steps};
  const GatheredShards shards{reinterpret_cast<std::byte*>(words.data()), sizeof(Word)};
  Status gathered = communicator_->all_gather({&shards, 1});
  // Whether the others hold the commit cannot be known any more.
  if (!gathered.ok()) {
    own.outcome = CommitOutcome::kBroken;
    if (own.status.ok()) own.status = std::move(gathered);
    return own;
  }
  for (std::uint32_t rank = 0; rank < words.size(); ++rank) {
    const Word& word = words[rank];
    if (word.waits == static_cast<std::uint64_t>(CallerWaits::kNo)) own.waits = CallerWaits::kNo;
    if (word.number != own.identity.number || word.steps != own.identity.steps) {
      own.outcome = CommitOutcome::kBroken;
      own.status =
          Status(Code::kFailedPrecondition,
                 fmt::format("rank {} makes commit {} after step {}, this rank commit {} after step {}: "
                             "calls must come in the same order on all ranks",
                             rank, word.number, word.steps, own.identity.number, own.identity.steps));
      continue;
    }
    const auto outcome = static_cast<CommitOutcome>(word.outcome);
    if (outcome <= own.outcome) continue;
    own.outcome = outcome;
    own.status = Status(
        Code::kAborted,
        fmt::format("rank {} {}", rank,
                    outcome == CommitOutcome::kBroken ? "could not make it durable" : "could not write it"));
  }
  return own;
}

void CommitExchange::work() {
  for (;;) {
    std::optional<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return job_.has_value() || stopping_; });
      if (!job_) return;
      job = std::exchange(job_, std::nullopt);
    }
    post_([result = exchange(std::move(job->own)), done = std::move(job->done)] { done(result); });
  }
}

}  // namespace sluice::engine
