#include "memory/mounts.hpp"

#include <sstream>

#include "memory/pseudo_file.hpp"

namespace sluice::memory {
namespace {

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

}  // namespace

// 36 35 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
std::vector<Mount> read_mounts(const std::string& root) {
  std::vector<Mount> mounts;
  std::istringstream lines(read_pseudo_file(root + "/proc/self/mountinfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash));
    std::istringstream after(line.substr(dash + 3));
    Mount mount;
    std::string id, parent;
    before >> id >> parent >> mount.device >> mount.top >> mount.point >> mount.options;
    after >> mount.type >> mount.source >> mount.super_options;
    mount.top = unescape(mount.top);
    mount.point = unescape(mount.point);
    mount.source = unescape(mount.source);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::optional<Mount> mount_of(std::span<const Mount> mounts, std::string_view path) {
  const Mount* deepest = nullptr;
  for (const Mount& mount : mounts) {
    const bool above = mount.point == "/" || path == mount.point ||
                       (path.starts_with(mount.point) && path.size() > mount.point.size() &&
                        path[mount.point.size()] == '/');
    if (above && (deepest == nullptr || mount.point.size() >= deepest->point.size())) deepest = &mount;
  }
  if (deepest == nullptr) return std::nullopt;
  return *deepest;
}

bool lists(std::string_view comma_separated, std::string_view word) {
  while (true) {
    const std::size_t comma = comma_separated.find(',');
    if (comma_separated.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) return false;
    comma_separated.remove_prefix(comma + 1);
  }
}

}  // namespace sluice::memory
