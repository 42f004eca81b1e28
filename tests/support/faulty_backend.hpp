#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "io/backend.hpp"
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

  FaultyBackend(io::Backend& inner, std::uint64_t seed) : inner_(inner), faults_(seed) {}

  FaultPlan& faults() { return faults_; }
  /// Keeps back the requests of this file until release().
  void hold(int fd) { held_fd_ = fd; }
  void release();
  /// From here on adopt() fails with this.
  void refuse_adoption(Status status) { adoption_ = std::move(status); }

  /// Every request, in the order of submission.
  const std::vector<Entry>& log() const { return log_; }
  std::uint32_t in_flight() const { return in_flight_; }
  std::uint32_t max_in_flight() const { return max_in_flight_; }

  std::string_view name() const override { return inner_.name(); }
  io::BackendLimits limits() const override { return inner_.limits(); }
  std::int64_t now_ns() const override { return inner_.now_ns(); }
  io::Request* submit(io::Request* first) override;
  io::Request* reap() override;
  void wait(std::int64_t deadline_ns) override;
  void wake() override { inner_.wake(); }
  Status adopt() override { return adoption_.ok() ? inner_.adopt() : adoption_; }
  Status register_memory(std::span<const std::span<std::byte>> regions) override {
    return inner_.register_memory(regions);
  }
  Status register_files(std::span<const int> fds) override { return inner_.register_files(fds); }
  void unregister() override { inner_.unregister(); }
  io::BackendUse in_use() const override { return inner_.in_use(); }

 private:
  io::Backend& inner_;
  FaultPlan faults_;
  std::map<io::Request*, std::uint32_t> asked_bytes_;  // of requests made short
  io::RequestList done_;
  io::RequestList kept_back_;
  int held_fd_ = Fault::kAnyFile;
  Status adoption_;
  std::uint32_t in_flight_ = 0;
  std::uint32_t max_in_flight_ = 0;
  std::vector<Entry> log_;
};

}  // namespace sluice::sim
