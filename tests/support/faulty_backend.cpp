#include "support/faulty_backend.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace sluice::sim {

io::Request* FaultyBackend::submit(io::Request* first) {
  io::RequestList passed;
  const std::uint32_t most = std::min(limits().depth - in_flight_, taken_most_);
  for (std::uint32_t room = most; first != nullptr && room > 0; --room) {
    io::Request& request = *first;
    first = first->next;
    const bool drop = request.op == io::Op::kDropCache;
    (drop ? drops_ : log_).push_back({request.op, request.bytes, request.offset});
    if (request.bytes > max_request_bytes_) std::abort();
    if (drop) ++drops_in_flight_;
    ++in_flight_;
    if (held_fd_ != Fault::kAnyFile && request.fd == held_fd_) {
      kept_back_.push(request);
    } else if (off_grid(request)) {
      request.result = -EINVAL;
      done_.push(request);
    } else if (const int fault = faults_.next(request); fault == Fault::kNothing) {
      request.result = 0;
      done_.push(request);
    } else if (fault == Fault::kShort) {
      asked_bytes_[&request] = request.bytes;
      request.bytes = faults_.shortened(request);
      passed.push(request);
    } else if (fault != 0) {
      request.result = -fault;
      done_.push(request);
    } else {
      passed.push(request);
    }
  }
  max_in_flight_ = std::max(max_in_flight_, in_flight());
  if (inner_.submit(passed.take()) != nullptr)
    std::abort();  // there is room: in_flight_ counts at least its requests
  return first;
}

io::Request* FaultyBackend::reap() {
  for (io::Request* request = inner_.reap(); request != nullptr;) {
    io::Request* next = request->next;
    if (const auto asked = asked_bytes_.find(request); asked != asked_bytes_.end()) {
      request->bytes = asked->second;
      asked_bytes_.erase(asked);
    }
    done_.push(*request);
    request = next;
  }
  in_flight_ -= done_.count;
  std::vector<io::Request*> finished;
  while (!done_.empty()) finished.push_back(&done_.pop());
  if (shuffles_) std::shuffle(finished.begin(), finished.end(), random_);
  for (io::Request* request : finished) {
    if (request->op == io::Op::kDropCache) --drops_in_flight_;
    done_.push(*request);
  }
  return done_.take();
}

bool FaultyBackend::off_grid(const io::Request& request) const {
  const auto found = grids_.find(request.fd);
  if (found == grids_.end() || (request.op != io::Op::kRead && request.op != io::Op::kWrite)) return false;
  const io::Grid grid = found->second;
  return (request.offset | request.bytes) % grid.offset_bytes != 0 ||
         reinterpret_cast<std::uintptr_t>(request.buffer) % grid.memory_bytes != 0;
}

void FaultyBackend::wait(std::int64_t deadline_ns, std::uint32_t events) {
  const std::uint32_t wanted = awaited(events, in_flight_ - kept_back_.count);
  if (done_.count < wanted) inner_.wait(deadline_ns, wanted - done_.count);
}

void FaultyBackend::release() {
  held_fd_ = Fault::kAnyFile;
  if (inner_.submit(kept_back_.take()) != nullptr) std::abort();
}

}  // namespace sluice::sim
