#include "memory/cgroup.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "memory/pseudo_file.hpp"

namespace sluice::memory {
namespace {

enum class Version : std::uint8_t { kV1, kV2 };

// One mount of a hierarchy: the group `top` of that hierarchy is seen at the folder `point`.
struct Mount {
  Version version;
  std::string top;
  std::string point;
  std::string controllers;  // v1: the mount's options, the controllers among them
};

// Where one hierarchy puts this process: a line of /proc/self/cgroup.
struct Membership {
  Version version;
  std::string controllers;
  std::string group;
};

bool lists(std::string_view comma_separated, std::string_view word) {
  while (true) {
    const std::size_t comma = comma_separated.find(',');
    if (comma_separated.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) return false;
    comma_separated.remove_prefix(comma + 1);
  }
}

// mountinfo writes blank, tab, newline and backslash as three octal digits: "\040" is a blank.
std::string unescape(const std::string& text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) &&
        octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// 36 35 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
std::vector<Mount> parse_mounts(const std::string& text) {
  std::vector<Mount> mounts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash));
    std::istringstream after(line.substr(dash + 3));
    std::string id, parent, device, top, point, type, source, options;
    before >> id >> parent >> device >> top >> point;
    after >> type >> source >> options;
    if (type != "cgroup" && type != "cgroup2") continue;
    mounts.push_back(
        {type == "cgroup2" ? Version::kV2 : Version::kV1, unescape(top), unescape(point), options});
  }
  return mounts;
}

// "4:memory:/batch/job" (v1), "0::/batch/job" (v2)
std::vector<Membership> parse_memberships(const std::string& text) {
  std::vector<Membership> memberships;
  std::istringstream lines(text);
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
  for (const Mount& candidate : mounts) {
    if (candidate.version != membership.version) continue;
    if (candidate.version == Version::kV1 && !lists(candidate.controllers, controller)) continue;
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

}  // namespace

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  const std::vector<Mount> mounts =
      parse_mounts(read_pseudo_file(root + "/proc/self/mountinfo").value_or(""));
  for (const Membership& membership :
       parse_memberships(read_pseudo_file(root + "/proc/self/cgroup").value_or(""))) {
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
