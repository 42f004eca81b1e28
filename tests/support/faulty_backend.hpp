#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "io/backend.hpp"
#include "io/file.hpp"
#include "io/request_list.hpp"
#include "support/fault_plan.hpp"

namespace sluice::sim {

/// Any backend, with faults put in front of it and a witness of what it was asked.
/// Lifetime: the inner backend outlives it.
class FaultyBackend final : public io::Backend {
 public:
  struct Entry {
    io::Op op;
    std::uint32_t bytes;
    std::uint64_t offset;
  };

  FaultyBackend(io::Backend& inner, std::uint64_t seed) : inner_(inner), faults_(seed), random_(seed) {}

  FaultPlan& faults() { return faults_; }
  /// Keeps back the requests of this file until release().
  void hold(int fd) { held_fd_ = fd; }
  void release();
  /// From here on adopt() fails with this.
  void refuse_adoption(Status status) { adoption_ = std::move(status); }

  /// Requests of this file that are off the grid fail with EINVAL, as a drive of that grid would answer.
  void enforce_grid(int fd, io::Grid grid) { grids_[fd] = grid; }
  /// No call of submit() takes more, however much room there is.
  void take_at_most(std::uint32_t requests) { taken_most_ = requests; }
  /// What one request may carry, instead of what the kernel takes.
  void set_max_request_bytes(std::uint32_t bytes) { max_request_bytes_ = bytes; }
  /// From now on finished requests come back in a random order.
  void shuffle() { shuffles_ = true; }

  /// Every request that moves bytes or flushes, in the order of submission.
  const std::vector<Entry>& log() const { return log_; }
  /// The others: ranges dropped from the page cache.
  const std::vector<Entry>& drops() const { return drops_; }
  /// Drops do not count.
  std::uint32_t in_flight() const { return in_flight_ - drops_in_flight_; }
  std::uint32_t max_in_flight() const { return max_in_flight_; }

  std::string_view name() const override { return inner_.name(); }
  io::BackendLimits limits() const override {
    return {.depth = inner_.limits().depth, .max_request_bytes = max_request_bytes_};
  }
  std::int64_t now_ns() const override { return inner_.now_ns(); }
  io::Request* submit(io::Request* first) override;
  io::Request* reap() override;
  void wait(std::int64_t deadline_ns, std::uint32_t events) override;
  void wake() override { inner_.wake(); }
  Status adopt() override { return adoption_.ok() ? inner_.adopt() : adoption_; }
  Status register_memory(std::span<const std::span<std::byte>> regions) override {
    return inner_.register_memory(regions);
  }
  Status register_files(std::span<const int> fds) override { return inner_.register_files(fds); }
  void unregister() override { inner_.unregister(); }
  io::BackendUse in_use() const override { return inner_.in_use(); }

 private:
  bool off_grid(const io::Request& request) const;

  io::Backend& inner_;
  FaultPlan faults_;
  std::map<io::Request*, std::uint32_t> asked_bytes_;  // of requests made short
  io::RequestList done_;
  io::RequestList kept_back_;
  int held_fd_ = Fault::kAnyFile;
  Status adoption_;
  std::map<int, io::Grid> grids_;  // by file
  std::uint32_t taken_most_ = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t max_request_bytes_ = io::kMaxRequestBytes;
  bool shuffles_ = false;
  std::mt19937_64 random_;
  std::uint32_t in_flight_ = 0;
  std::uint32_t drops_in_flight_ = 0;
  std::uint32_t max_in_flight_ = 0;
  std::vector<Entry> log_;
  std::vector<Entry> drops_;
};

}  // namespace sluice::sim
