#include "engine/commit_exchange.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "memory/thread.hpp"

namespace sluice::engine {

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

CommitResult CommitExchange::exchange(CommitResult own) {
  std::vector<std::byte> outcomes(communicator_->world());
  outcomes[communicator_->rank()] = static_cast<std::byte>(own.outcome);
  const GatheredShards shards{outcomes.data(), 1};
  Status gathered = communicator_->all_gather({&shards, 1});
  // Whether the others hold the commit cannot be known any more.
  if (!gathered.ok())
    return {CommitOutcome::kBroken, own.status.ok() ? std::move(gathered) : std::move(own.status)};
  for (std::uint32_t rank = 0; rank < outcomes.size(); ++rank) {
    const auto outcome = static_cast<CommitOutcome>(outcomes[rank]);
    if (outcome <= own.outcome) continue;
    const char* const how =
        outcome == CommitOutcome::kBroken ? "could not make it durable" : "could not write it";
    own = {outcome, Status(Code::kAborted, fmt::format("rank {} {}", rank, how))};
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
