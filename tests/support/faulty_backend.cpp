#include "support/faulty_backend.hpp"

#include <algorithm>
#include <cstdlib>

namespace sluice::sim {

io::Request* FaultyBackend::submit(io::Request* first) {
  io::RequestList passed;
  for (std::uint32_t room = limits().depth - in_flight_; first != nullptr && room > 0; --room) {
    io::Request& request = *first;
    first = first->next;
    log_.push_back({request.op, request.bytes, request.offset});
    ++in_flight_;
    if (held_fd_ != Fault::kAnyFile && request.fd == held_fd_) {
      kept_back_.push(request);
    } else if (const int fault = faults_.next(request); fault == Fault::kShort) {
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
  max_in_flight_ = std::max(max_in_flight_, in_flight_);
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
  return done_.take();
}

void FaultyBackend::wait(std::int64_t deadline_ns) {
  if (done_.empty()) inner_.wait(deadline_ns);
}

void FaultyBackend::release() {
  held_fd_ = Fault::kAnyFile;
  if (inner_.submit(kept_back_.take()) != nullptr) std::abort();
}

}  // namespace sluice::sim
