#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "io/backend.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_world.hpp"

namespace sluice::sim {

class OutageDrive;

/// A moment at which several drives stop together, as those of one machine do: the n-th request that any of them is
/// given, itself and all others in flight torn.
/// Threads: any.
class Outage {
 public:
  /// Which drives stop.
  enum class Hits { kAll, kOne };
  struct Options {
    std::uint64_t request = 0;  ///< counted from 1 over the drives that are hit; 0: never
    Crash kind = Crash::kProcessKilled;
    Hits hits = Hits::kAll;
    std::uint32_t drive = 0;  ///< with kOne: the one
    /// Called in that moment, with every drive standing still.
    std::function<void()> meanwhile;
  };
  explicit Outage(Options options) : options_(std::move(options)) {}

  bool has_struck() const;
  /// The drives that it has not hit stop too.
  void strike_all();

 private:
  friend class OutageDrive;
  /// One more request. Requires: mutex_ is held.
  void count(std::uint32_t drive);

  const Options options_;
  mutable std::mutex mutex_;
  std::vector<OutageDrive*> drives_;  // guarded by mutex_
  std::uint64_t requests_ = 0;        // guarded by mutex_
  bool struck_ = false;               // guarded by mutex_
};

/// A simulated drive in a world of its own, for a control loop that is a thread and sleeps.
class OutageDrive final : public io::Backend {
 public:
  OutageDrive(Outage& outage, std::uint32_t index, std::uint64_t seed);
  ~OutageDrive() override;

  std::string_view name() const override { return backend_.name(); }
  io::BackendLimits limits() const override { return backend_.limits(); }
  std::int64_t now_ns() const override { return backend_.now_ns(); }
  io::Request* submit(io::Request* first) override;
  io::Request* reap() override;
  void wait(std::int64_t deadline_ns, std::uint32_t events) override;
  void wake() override;

 private:
  friend class Outage;

  Outage& outage_;
  const std::uint32_t index_;
  SimWorld world_;
  SimBackend backend_{world_, {}};
  std::uint32_t in_flight_ = 0;  // guarded by the outage's mutex, as the backend is
  bool woken_ = false;
  std::condition_variable changed_;
};

}  // namespace sluice::sim
