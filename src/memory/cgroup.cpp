#include "memory/cgroup.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "memory/mounts.hpp"
#include "memory/pseudo_file.hpp"

namespace sluice::memory {
namespace {

enum class Version : std::uint8_t { kV1, kV2 };

// Where one hierarchy puts this process: a line of /proc/self/cgroup.
struct Membership {
  Version version;
  std::string controllers;
  std::string group;
};

// "4:memory:/batch/job" (v1), "0::/batch/job" (v2)
std::vector<Membership> read_memberships(const std::string& root) {
  std::vector<Membership> memberships;
  std::istringstream lines(read_pseudo_file(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const Version version = controllers.empty() ? Version::kV2 : Version::kV1;
    memberships.push_back({version, controllers, line.substr(second + 1)});
  }
  return memberships;
}

// `group` as seen below a mount of `top`: ("/docker/a/b", "/docker/a") is "/b", ("/a", "/") is "/a". Nothing
// when the mount does not show the group, as in a container whose mount is cut narrower or whose namespace
// starts elsewhere.
std::optional<std::string> below(const std::string& group, const std::string& top) {
  if (group.find("/..") != std::string::npos) return std::nullopt;
  if (top == "/") return group == "/" ? "" : group;
  if (group == top) return "";
  if (group.starts_with(top + "/")) return group.substr(top.size());
  return std::nullopt;
}

// The folders of the group and its visible ancestors, innermost first.
std::vector<std::string> folders_of(const Membership& membership, const std::vector<Mount>& mounts,
                                    std::string_view controller) {
  const Mount* mount = nullptr;
  std::string path;
  const bool v2 = membership.version == Version::kV2;
  for (const Mount& candidate : mounts) {
    if (candidate.type != (v2 ? "cgroup2" : "cgroup")) continue;
    if (!v2 && !lists(candidate.super_options, controller)) continue;
    const std::optional<std::string> shown = below(membership.group, candidate.top);
    if (mount == nullptr || shown.has_value()) {
      mount = &candidate;
      path = shown.value_or("");
    }
    if (shown.has_value()) break;
  }
  std::vector<std::string> folders;
  if (mount == nullptr) return folders;
  for (; !path.empty(); path.resize(path.rfind('/'))) folders.push_back(mount->point + path);
  folders.push_back(mount->point);
  return folders;
}

struct MemoryFiles {
  const char* limit;
  const char* use;
  const char* inactive_cache;  // lines of memory.stat, descendants included
  const char* active_cache;
};
constexpr MemoryFiles kMemoryV1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file",
                                "total_active_file"};
constexpr MemoryFiles kMemoryV2{"/memory.max", "/memory.current", "inactive_file", "active_file"};

// v1 says "none" with LONG_MAX rounded down to a page; nothing near it is a limit.
constexpr std::uint64_t kLeastUnlimited = std::uint64_t{1} << 62;

void add_memory_limit(const std::string& root, const std::string& folder, const MemoryFiles& files,
                      CgroupLimits& limits) {
  const std::string limit_file = folder + files.limit;
  const auto limit_text = read_pseudo_file(root + limit_file);
  if (!limit_text) return;
  const auto limit = parse_number(*limit_text);  // "max" is no number
  if (!limit || *limit >= kLeastUnlimited) return;
  if (*limit < limits.memory_bytes) {
    limits.memory_bytes = *limit;
    limits.memory_file = limit_file;
  }
  const auto number = [](const std::optional<std::string>& text) {
    return text ? parse_number(*text).value_or(0) : 0;
  };
  const std::string stat = read_pseudo_file(root + folder + "/memory.stat").value_or("");
  const std::uint64_t cache = number_of_line(stat, files.inactive_cache).value_or(0) +
                              number_of_line(stat, files.active_cache).value_or(0);
  const std::uint64_t charged = number(read_pseudo_file(root + folder + files.use));
  const std::uint64_t used = charged - std::min(charged, cache);
  limits.memory_room_bytes = std::min(limits.memory_room_bytes, *limit - std::min(*limit, used));
}

// v2 cpu.max: "50000 100000" or "max 100000"; v1 has a file each, a quota of -1 is none.
void add_cpu_quota(const std::string& root, const std::string& folder, Version version,
                   CgroupLimits& limits) {
  std::optional<std::uint64_t> quota, period;
  if (version == Version::kV2) {
    const std::string text = read_pseudo_file(root + folder + "/cpu.max").value_or("");
    quota = parse_number(text);
    period = parse_number(std::string_view(text).substr(std::min(text.find(' '), text.size())));
  } else {
    quota = parse_number(read_pseudo_file(root + folder + "/cpu.cfs_quota_us").value_or(""));
    period = parse_number(read_pseudo_file(root + folder + "/cpu.cfs_period_us").value_or(""));
  }
  if (!quota || !period || *quota == 0 || *period == 0) return;
  limits.cpu_quota = std::min(limits.cpu_quota, static_cast<double>(*quota) / static_cast<double>(*period));
}

// v2 io.max: a line a device, "259:0 rbps=2097152 wbps=max riops=max wiops=120".
// v1: a file a limit, "259:0 2097152".
struct DriveLimitFile {
  const char* v1_file;
  const char* v2_key;
  DriveLimit DriveLimits::*limit;
};
constexpr std::array kDriveLimits = {
    DriveLimitFile{"/blkio.throttle.read_bps_device", "rbps=", &DriveLimits::read_bytes},
    DriveLimitFile{"/blkio.throttle.write_bps_device", "wbps=", &DriveLimits::write_bytes},
    DriveLimitFile{"/blkio.throttle.read_iops_device", "riops=", &DriveLimits::reads},
    DriveLimitFile{"/blkio.throttle.write_iops_device", "wiops=", &DriveLimits::writes}};

void add_drive_limits(const std::string& root, const std::string& folder, const std::string& device,
                      Version version, DriveLimits& limits) {
  for (const DriveLimitFile& file : kDriveLimits) {
    const std::string path = folder + (version == Version::kV2 ? "/io.max" : file.v1_file);
    std::istringstream lines(read_pseudo_file(root + path).value_or(""));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(device + " ")) continue;
      std::optional<std::uint64_t> limit;
      if (version == Version::kV1) {
        limit = parse_number(std::string_view(line).substr(device.size()));
      } else if (const std::size_t key = line.find(file.v2_key); key != std::string::npos) {
        limit = parse_number(std::string_view(line).substr(key + std::string_view(file.v2_key).size()));
      }
      if (!limit || *limit == 0 || *limit >= (limits.*file.limit).per_s) continue;  // v1 lifts a limit with 0
      limits.*file.limit = {*limit, path};
    }
  }
}

}  // namespace

DriveLimits tightest(const DriveLimits& one, const DriveLimits& other) {
  DriveLimits limits = one;
  for (const DriveLimitFile& file : kDriveLimits)
    if ((other.*file.limit).per_s < (limits.*file.limit).per_s) limits.*file.limit = other.*file.limit;
  return limits;
}

DriveLimits read_drive_limits(const std::string& device, const std::string& root) {
  DriveLimits limits;
  const std::vector<Mount> mounts = read_mounts(root);
  for (const Membership& membership : read_memberships(root)) {
    const bool v2 = membership.version == Version::kV2;
    if (!v2 && !lists(membership.controllers, "blkio")) continue;
    for (const std::string& folder : folders_of(membership, mounts, "blkio"))
      add_drive_limits(root, folder, device, membership.version, limits);
  }
  return limits;
}

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  const std::vector<Mount> mounts = read_mounts(root);
  for (const Membership& membership : read_memberships(root)) {
    const bool v2 = membership.version == Version::kV2;
    if (v2 || lists(membership.controllers, "memory"))
      for (const std::string& folder : folders_of(membership, mounts, "memory"))
        add_memory_limit(root, folder, v2 ? kMemoryV2 : kMemoryV1, limits);
    if (v2 || lists(membership.controllers, "cpu"))
      for (const std::string& folder : folders_of(membership, mounts, "cpu"))
        add_cpu_quota(root, folder, membership.version, limits);
  }
  return limits;
}

}  // namespace sluice::memory
