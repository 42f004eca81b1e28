#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "io/backend.hpp"
#include "io/request_list.hpp"

namespace sluice::io {

/// Drives of known rate and latency on a manual clock: a request finishes a latency after it was submitted, and
/// all those of one file no faster than its rate. No byte is moved. wait() never sleeps, it moves the clock to
/// the next completion.
class RatedBackend final : public Backend {
 public:
  struct Rate {
    double bytes_per_s = 1e9;
    std::int64_t latency_ns = 100'000;
    bool hangs = false;  ///< nothing finishes until release()
  };

  explicit RatedBackend(std::uint32_t depth) : depth_(depth) {}

  /// For requests submitted from now on.
  void set(int fd, const Rate& rate) { drives_[fd].rate = rate; }
  /// Lets everything that hangs finish.
  void release() {
    for (auto& [fd, drive] : drives_) drive.rate.hangs = false;
    for (Sent& sent : sent_) sent.due_ns = std::min(sent.due_ns, now_ns_);
  }
  std::uint32_t in_flight(int fd) const {
    const auto found = drives_.find(fd);
    return found == drives_.end() ? 0 : found->second.in_flight;
  }
  std::uint32_t most_in_flight(int fd) const {
    const auto found = drives_.find(fd);
    return found == drives_.end() ? 0 : found->second.most_in_flight;
  }
  std::uint64_t clock_reads() const { return clock_reads_; }
  std::uint32_t most_bytes() const { return most_bytes_; }
  void set_max_request_bytes(std::uint32_t bytes) { max_request_bytes_ = bytes; }

  std::string_view name() const override { return "rated"; }
  BackendLimits limits() const override { return {.depth = depth_, .max_request_bytes = max_request_bytes_}; }
  std::int64_t now_ns() const override {
    ++clock_reads_;
    return now_ns_;
  }
  Request* submit(Request* first) override {
    while (first != nullptr && held_ < depth_) {
      Request* request = first;
      first = first->next;
      Drive& drive = drives_[request->fd];
      drive.free_ns = std::max(drive.free_ns, static_cast<double>(now_ns_)) +
                      request->bytes / drive.rate.bytes_per_s * 1e9;
      const std::int64_t due_ns =
          std::max(now_ns_ + drive.rate.latency_ns, static_cast<std::int64_t>(drive.free_ns));
      sent_.push_back({drive.rate.hangs ? kNoDeadline : due_ns, request});
      drive.most_in_flight = std::max(drive.most_in_flight, ++drive.in_flight);
      most_bytes_ = std::max(most_bytes_, request->bytes);
      ++held_;
    }
    return first;
  }
  Request* reap() override {
    RequestList done;
    std::erase_if(sent_, [&](const Sent& sent) {
      if (sent.due_ns > now_ns_) return false;
      sent.request->result = sent.request->bytes;
      --drives_[sent.request->fd].in_flight;
      --held_;
      done.push(*sent.request);
      return true;
    });
    return done.take();
  }
  void wait(std::int64_t deadline_ns, std::uint32_t events) override {
    std::vector<std::int64_t> dues_ns;
    for (const Sent& sent : sent_) dues_ns.push_back(sent.due_ns);
    std::ranges::sort(dues_ns);
    if (!dues_ns.empty()) deadline_ns = std::min(deadline_ns, dues_ns[awaited(events, held_) - 1]);
    if (deadline_ns != kNoDeadline) now_ns_ = std::max(now_ns_, deadline_ns);
  }
  void wake() override {}

 private:
  struct Drive {
    Rate rate;
    double free_ns = 0;
    std::uint32_t in_flight = 0;
    std::uint32_t most_in_flight = 0;
  };
  struct Sent {
    std::int64_t due_ns;
    Request* request;
  };

  std::uint32_t depth_;
  std::uint32_t max_request_bytes_ = kMaxRequestBytes;
  std::uint32_t held_ = 0;
  std::uint32_t most_bytes_ = 0;
  std::int64_t now_ns_ = 0;
  mutable std::uint64_t clock_reads_ = 0;
  std::map<int, Drive> drives_;
  std::vector<Sent> sent_;
};

}  // namespace sluice::io
