#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory/cgroup.hpp"
#include "memory/mounts.hpp"
#include "memory/placement.hpp"

namespace sluice::tools {

enum class CheckStatus {
  kOk,
  kDegraded,  ///< works, slower or with less than it could
  kMissing,
};

/// One thing that Sluice likes to have.
/// Invariant: `remedy` is empty exactly when `status` is kOk.
struct Check {
  std::string name;
  CheckStatus status = CheckStatus::kOk;
  std::string detail;  ///< what was found
  std::string remedy;  ///< what would make it ok
};

/// A check that puts several things together: ok until a remedy is added.
class Findings {
 public:
  void add(std::string detail) { details_.push_back(std::move(detail)); }
  void add(std::string detail, std::string remedy) {
    details_.push_back(std::move(detail));
    remedies_.push_back(std::move(remedy));
  }
  Check check(std::string name) const;

 private:
  std::vector<std::string> details_;
  std::vector<std::string> remedies_;
};

/// Where /proc, /sys and /dev are read; what is tried is always tried on the machine that runs.
struct Machine {
  std::string root;
};

/// The machine, checked in the order of these functions: whether a ring opens and what it offers, the lock limit
/// and the limit of open files.
std::vector<Check> check_ring(const Machine& machine);
/// Huge pages, memory, control groups.
std::vector<Check> check_memory(const Machine& machine);
/// CPUs, NUMA nodes and where the directories' drives are attached, instruction sets.
std::vector<Check> check_processors(const Machine& machine, const std::vector<std::string>& directories);
/// GPU, NCCL, MPI: all may be missing.
std::vector<Check> check_accelerators(const Machine& machine);

/// The drives below the directories: file system and devices, whether each directory has a drive of its own, the
/// control groups' limits on it, direct I/O (really tried) and its grid, space, and what is known of
/// the drive's speed.
/// Lifetime: nothing stays in the directories.
std::vector<Check> check_drives(const Machine& machine, const std::vector<std::string>& directories);

/// The stores in the directories: what each is, who uses it and what a crash would cost. Changes nothing.
std::vector<Check> check_stores(const std::vector<std::string>& directories);

/// What trying a ring came to.
struct RingFacts {
  int error = 0;              ///< of io_uring_setup(2); 0: it opened
  std::string disabled = {};  ///< sysctl kernel.io_uring_disabled; empty: the kernel has no such setting
  std::string seccomp = {};   ///< of /proc/self/status: "0" none, "2" a filter; empty: unknown
  std::uint32_t flags = 0;    ///< IORING_SETUP_… that the kernel takes
};
Check judge_ring_flags(const RingFacts& facts);
/// Why there is no ring. Requires: facts.error is not 0.
Check judge_refused_ring(const RingFacts& facts);

/// `drive_nodes`: of each directory, with kUnknownNode where that is not known.
Check judge_numa(std::span<const memory::NumaNode> nodes, const std::vector<std::string>& directories,
                 const std::vector<std::vector<int>>& drive_nodes);

/// What asking the driver of NVIDIA came to.
struct GpuFacts {
  bool library = false;  ///< libcuda.so.1 could be loaded
  int error = 0;         ///< of cuInit or what followed; 35 and 100 both mean that there is no GPU
  std::vector<std::string> devices = {};  ///< in words
  std::string driver = {};              ///< the line of /proc/driver/nvidia/version; empty: no kernel module
  std::vector<std::string> nodes = {};  ///< of /dev: "nvidia0", "nvidiactl"
};
Check judge_gpu(const GpuFacts& facts);

/// Whether a file system that copies on write does so in a directory: chattr +C turns it off.
enum class CopyOnWrite : std::uint8_t { kUnknown, kOff };
/// The type and the options that cost speed or safety.
Check judge_file_system(const std::string& directory, const std::optional<memory::Mount>& mount,
                        CopyOnWrite copying);
/// What control groups allow on the drives below a directory.
Check judge_drive_limits(const std::string& directory, const memory::DriveLimits& limits);

/// 21805 is "2.18.5", 2708 is "2.7.8".
std::string nccl_version_text(int version);

}  // namespace sluice::tools
