#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/compute.hpp"
#include "io/queue.hpp"
#include "memory/topology.hpp"
#include "sluice/device.hpp"
#include "sluice/status.hpp"

namespace sluice::engine {

/// The outcome of one command, completed on the loop and awaited by the thread that posted it.
class Ticket {
 public:
  Ticket() = default;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

 private:
  friend class Loop;
  std::optional<Status> status_;  // guarded by the loop's mutex
};

enum class LoopMode : std::uint8_t {
  kThread,  ///< a thread of its own, which sleeps in the I/O queue
  kInline,  ///< turned by whoever waits for a ticket, one thread only: the simulator's way
};

/// A device copy that the loop delivers.
struct Copy : DeviceCopy {
  std::function<void(Copy&)> done;
};

/// What a loop turns over. Copies given to the device are all of type Copy. All outlive it.
struct LoopSources {
  io::Queue* queue = nullptr;
  Compute* compute = nullptr;
  DeviceSession* device = nullptr;
};

/// The control loop of one rank, which owns the I/O queue from start() to its end: runs commands in the order of their arrival and delivers completions of I/O,
/// copies and compute. What runs on it needs no locks; it never computes over elements and never waits for
/// one transfer.
class Loop {
 public:
  Loop(LoopMode mode, LoopSources sources);
  /// Takes the queue's backend over, calls `prepare` on the loop's thread, which may register with the backend what
  /// it likes, and begins to turn. Once, before anything waits.
  /// Requires: nothing is in flight.
  /// Errors: kResourceExhausted when the system has no thread to give; those of Backend::adopt().
  /// After a failure the loop turns no more.
  Status start(const std::function<void()>& prepare);
  /// Narrows a thread of its own to these CPUs. Once it has started.
  /// Errors: as memory::bind_thread; it then goes on where it was.
  Status bind(const memory::Topology& topology, std::span<const std::uint32_t> cpus);
  /// Runs what was posted, waits for the I/O in flight, lets go of what was registered with the backend, then ends.
  /// Requires: no copy and no compute is in flight.
  ~Loop();

  /// Threads: any.
  /// Blocks: never.
  void post(std::function<void()> command);

  /// Completes a ticket.
  /// Threads: the loop's.
  void complete(Ticket& ticket, Status status);

  /// Sleeps until the ticket is complete.
  /// Errors: the ticket's; in inline mode kInternal when nothing is in flight that could complete it.
  Status wait(Ticket& ticket);

  /// Posts `command(ticket)` and waits for the ticket.
  Status call(const std::function<void(Ticket&)>& command);

  /// After which every completion source is asked; called when one has finished something.
  /// Threads: any.
  void wake() { sources_.queue->wake(); }

 private:
  Status take_over(const std::function<void()>& prepare);
  bool turn();
  void run();
  /// Turns until there is nothing left that it was given.
  void finish();

  const LoopMode mode_;
  const LoopSources sources_;
  std::mutex mutex_;
  std::condition_variable completed_;
  std::vector<std::function<void()>> posted_;   // guarded by mutex_
  std::vector<std::function<void()>> running_;  // the loop's
  bool stopping_ = false;                       // guarded by mutex_
  std::thread thread_;
};

}  // namespace sluice::engine
