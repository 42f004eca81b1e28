#include "engine/loop.hpp"

#include <utility>

#include "memory/thread.hpp"

namespace sluice::engine {
namespace {

/// An inline loop that did nothing for so many turns has nothing in flight: each turn moves a simulated world
/// on.
constexpr int kIdleTurns = 10'000;

}  // namespace

Loop::Loop(LoopMode mode, LoopSources sources) : mode_(mode), sources_(sources) {}

Status Loop::start(const std::function<void()>& prepare) {
  if (mode_ == LoopMode::kInline) return take_over(prepare);
  Ticket started;
  Result<std::thread> thread = memory::start_thread("sluice-loop", [&] {
    Status status = take_over(prepare);
    const bool turns = status.ok();
    complete(started, std::move(status));  // `started` and `prepare` are gone from here on
    if (turns) run();
  });
  if (!thread.ok()) return thread.status();
  Status status = wait(started);
  thread_ = std::move(thread).value();
  if (!status.ok()) thread_.join();
  return status;
}

Status Loop::take_over(const std::function<void()>& prepare) {
  SLUICE_RETURN_IF_ERROR(sources_.queue->backend().adopt());
  prepare();
  return {};
}

Status Loop::bind(const memory::Topology& topology, std::span<const std::uint32_t> cpus) {
  return thread_.joinable() ? memory::bind_thread(topology, thread_.native_handle(), cpus) : Status();
}

Loop::~Loop() {
  if (!thread_.joinable()) {
    finish();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void Loop::post(std::function<void()> command) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(command));
  }
  wake();
}

void Loop::complete(Ticket& ticket, Status status) {
  // Notified under the lock: the ticket is gone as soon as its waiter sees the status.
  std::lock_guard lock(mutex_);
  ticket.status_ = std::move(status);
  completed_.notify_all();
}

Status Loop::wait(Ticket& ticket) {
  if (mode_ == LoopMode::kThread) {
    std::unique_lock lock(mutex_);
    completed_.wait(lock, [&] { return ticket.status_.has_value(); });
    return *std::move(ticket.status_);
  }
  for (int idle = 0; !ticket.status_.has_value(); ++idle) {
    if (turn()) idle = 0;
    if (idle == kIdleTurns)
      return Status(Code::kInternal, "the control loop waits for nothing that is in flight");
    if (!ticket.status_.has_value()) sources_.queue->wait();
  }
  return *std::move(ticket.status_);
}

Status Loop::call(const std::function<void(Ticket&)>& command) {
  Ticket ticket;
  post([&] { command(ticket); });
  return wait(ticket);
}

bool Loop::turn() {
  bool worked = false;
  {
    std::lock_guard lock(mutex_);
    running_.swap(posted_);
  }
  for (auto& command : running_) {
    command();
    worked = true;
  }
  running_.clear();
  if (sources_.queue->poll() > 0) worked = true;
  while (DeviceCopy* copy = sources_.device->poll()) {
    static_cast<Copy*>(copy)->done(*static_cast<Copy*>(copy));
    worked = true;
  }
  while (ComputeTask* task = sources_.compute->poll()) {
    task->done();
    worked = true;
  }
  return worked;
}

void Loop::run() {
  for (;;) {
    if (turn()) continue;
    {
      std::lock_guard lock(mutex_);
      if (stopping_ && posted_.empty()) break;
    }
    sources_.queue->wait();
  }
  finish();
}

void Loop::finish() {
  for (;;) {
    if (turn()) continue;
    if (sources_.queue->in_flight() == 0) break;
    sources_.queue->wait();
  }
  sources_.queue->drain();  // of the queue's own requests, which are in flight for nobody
  sources_.queue->backend().unregister();
}

}  // namespace sluice::engine
