#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "io/backend.hpp"
#include "io/request_list.hpp"
#include "support/fault_plan.hpp"
#include "support/sim_world.hpp"

namespace sluice::sim {

/// What a drive loses or keeps of what was written and not flushed.
enum class Crash {
  kProcessKilled,  ///< the kernel lives: finished writes stay, those in flight happen in part
  kPowerLost,      ///< each unflushed 512-byte sector stays or is forgotten on its own
};

struct SimOptions {
  std::uint32_t depth = 64;
  std::int64_t min_latency_ns = 1'000;
  std::int64_t max_latency_ns = 1'000'000;
  /// How long a request submitted now takes; null: anything between the two above.
  std::function<std::int64_t(const io::Request&, std::int64_t now_ns)> delay_ns = {};
};

/// A Backend whose requests really read and write their files, each at a random later moment of a SimWorld,
/// in any order. Writes stay in memory by sectors until a flush of their file, so that crash() can forget or
/// tear them; reads see them. wait() never sleeps: it steps the world until something has finished. When
/// nothing is pending it returns; a loop that then goes on waiting without a deadline hangs, which
/// world.idle() tells. Requires: the file's other readers and writers know that unflushed bytes are not in
/// it. Lifetime: the world outlives the backend. Destruction finishes the requests held, then writes out what
/// was not flushed, as the kernel would for a process that ends.
class SimBackend final : public io::Backend {
 public:
  SimBackend(SimWorld& world, const SimOptions& options);
  ~SimBackend() override;

  /// What goes wrong. A write that fails with EIO changes some of its sectors, other failing ones change
  /// nothing.
  FaultPlan& faults() { return faults_; }

  /// The drive stops: requests held fail with EIO (their writes happened in part or not), later ones too.
  void crash(Crash crash);

  /// Sectors written and not flushed.
  std::size_t unflushed_sectors() const;
  /// Bytes that requests have moved.
  std::uint64_t bytes_moved() const { return bytes_moved_; }

  std::string_view name() const override { return "simulation"; }
  io::BackendLimits limits() const override { return {.depth = options_.depth}; }
  std::int64_t now_ns() const override { return world_.now_ns(); }
  io::Request* submit(io::Request* first) override;
  io::Request* reap() override;
  void wait(std::int64_t deadline_ns, std::uint32_t events) override;
  void wake() override { woken_ = true; }

 private:
  static constexpr std::uint64_t kSectorBytes = 512;
  using Sector = std::array<std::byte, kSectorBytes>;
  using FileKey = std::pair<dev_t, ino_t>;
  struct Drive {  // one file
    int fd = -1;  // a duplicate, valid for as long as the backend
    std::map<std::uint64_t, Sector> unflushed;
  };

  void perform(io::Request& request);
  std::int64_t run(io::Request& request);
  Drive* drive_of(int fd);
  std::int64_t read(Drive& drive, const io::Request& request, std::uint64_t bytes);
  std::int64_t write(Drive& drive, const io::Request& request, std::uint64_t bytes);
  void write_torn(Drive& drive, const io::Request& request);
  void load(const Drive& drive, std::uint64_t sector, Sector& target) const;
  std::int64_t write_out(Drive& drive);

  SimWorld& world_;
  SimOptions options_;
  FaultPlan faults_;
  std::map<FileKey, Drive> drives_;
  io::RequestList done_;
  std::vector<io::Request*> running_;
  std::uint32_t held_ = 0;
  std::uint64_t bytes_moved_ = 0;
  bool crashed_ = false;
  std::atomic<bool> woken_ = false;
};

}  // namespace sluice::sim
