#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "sluice/communicator.hpp"
#include "sluice/status.hpp"

namespace sluice::engine {

/// How a commit went; of several ranks the greatest counts.
enum class CommitOutcome : std::uint8_t {
  kDurable,
  kDropped,  ///< failed before its record was begun: the commits before stay and work goes on
  kBroken,   ///< what the drives kept is not known: nothing may be written any more
};

/// Whether a commit's caller waits in commit() itself and hears there how it went.
enum class CallerWaits : std::uint8_t { kNo, kYes };

/// What ranks must agree on before their commits are one.
struct CommitIdentity {
  std::uint64_t number = 0;
  std::uint64_t steps = 0;
};

/// How a commit went, and why where it failed.
struct CommitResult {
  CommitOutcome outcome = CommitOutcome::kDurable;
  Status status = {};
  CommitIdentity identity = {};
  CallerWaits waits = CallerWaits::kNo;  ///< of all ranks: kYes where all do
};

/// The ranks tell each other how a commit went, on a communicator of its own and with several ranks on a thread of
/// its own, so that neither the control loop nor the trainer's collectives wait for it.
class CommitExchange {
 public:
  /// `post` runs a function on the loop.
  CommitExchange(std::shared_ptr<Communicator> communicator, std::function<void(std::function<void()>)> post);
  /// Requires: no exchange is under way, or its peers answer.
  ~CommitExchange();
  CommitExchange(const CommitExchange&) = delete;
  CommitExchange& operator=(const CommitExchange&) = delete;

  /// Errors: kResourceExhausted when the system has no thread to give.
  Status start();

  /// `done` has, on the loop, this rank's result or the worse one of another rank; kBroken where ranks bring
  /// different commits. One at a time.
  /// Threads: the loop's.
  void run(CommitResult own, std::function<void(CommitResult)> done);

  /// Ends the peers' exchanges with `cause`: this rank takes part in none any more.
  /// Threads: any.
  void abort(const Status& cause) const;

 private:
  struct Job {
    CommitResult own;
    std::function<void(CommitResult)> done;
  };
  CommitResult exchange(CommitResult own) const;
  void work();

  const std::shared_ptr<Communicator> communicator_;
  const std::function<void(std::function<void()>)> post_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> job_;  // guarded by mutex_
  bool stopping_ = false;   // guarded by mutex_
  std::thread thread_;
};

}  // namespace sluice::engine
