#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace sluice::memory {

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
inline constexpr double kNoQuota = std::numeric_limits<double>::infinity();

/// What control groups (v1, v2 or both mounted side by side) allow this process: the tightest of its own
/// group and of every visible ancestor.
struct CgroupLimits {
  std::uint64_t memory_bytes = kNoLimit;       ///< least memory.max (v2) or memory.limit_in_bytes (v1)
  std::uint64_t memory_room_bytes = kNoLimit;  ///< least of limit - use, page cache not counted as use
  std::string memory_file;                     ///< the file that sets memory_bytes; empty without a limit
  double cpu_quota = kNoQuota;  ///< CPUs' worth of time: quota / period of cpu.max or cpu.cfs_quota_us
};

/// Reads <root>/proc/self/cgroup and <root>/proc/self/mountinfo and the groups they name below <root>. What
/// is absent or cannot be parsed limits nothing.
/// Threads: any.
/// Blocks: on a few reads of pseudo-files.
/// Source: cgroups(7), proc_pid_mountinfo(5), the kernel's admin-guide/cgroup-v1/memory and
/// admin-guide/cgroup-v2.
CgroupLimits read_cgroup_limits(const std::string& root = "");

/// A limit, and the file that sets it: io.max (v2) or blkio.throttle.… (v1); empty without a limit.
struct DriveLimit {
  std::uint64_t per_s = kNoLimit;
  std::string file;
};

/// What control groups allow this process on one block device: the tightest of its own group and of every
/// visible ancestor.
struct DriveLimits {
  DriveLimit read_bytes, write_bytes, reads, writes;
};

/// The tighter one of each.
DriveLimits tightest(const DriveLimits& one, const DriveLimits& other);

/// As read_cgroup_limits(), of the device with this number, "259:0". A limit is set on a whole drive, never on a
/// partition.
DriveLimits read_drive_limits(const std::string& device, const std::string& root = "");

}  // namespace sluice::memory
