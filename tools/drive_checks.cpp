#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "io/directory.hpp"
#include "io/file.hpp"
#include "tools/block_device.hpp"
#include "tools/checks.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kProbeBytes = 1 << 20;
constexpr std::uint64_t kLittleSpaceBytes = 1 << 30;

// The file system's type and source from the mount that the directory is on: of the mounts of its device, the
// last one that is above it. Source: proc(5), /proc/pid/mountinfo.
std::string mount_text(const std::string& directory, const std::string& device_number) {
  std::error_code error;
  const std::string path = fs::canonical(directory, error).string();
  std::ifstream mounts("/proc/self/mountinfo");
  std::string best = "unknown file system";
  std::size_t best_length = 0;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, root, point, word, type, source;
    fields >> id >> parent >> device >> root >> point;
    while (fields >> word && word != "-") {
    }
    fields >> type >> source;
    const bool above = point == "/" || path == point || path.rfind(point + "/", 0) == 0;
    if (device == device_number && above && point.size() >= best_length) {
      best_length = point.size();
      best = fmt::format("{} on {}", type, source);
    }
  }
  return best;
}

Check check_direct(const std::string& path) {
  const std::string name = "direct I/O on " + path;
  auto directory = io::Directory::open(path, io::Access::kReadWrite);
  if (!directory.ok()) {
    return {name, CheckStatus::kMissing, directory.status().message(),
            "name a directory that can be written"};
  }
  const std::string probe = fmt::format("sluice-doctor-{}", getpid());
  auto file = io::File::open(*directory, probe, {.creation = io::Creation::kExclusive});
  if (!file.ok())
    return {name, CheckStatus::kMissing, file.status().message(), "make the directory writable"};
  Status status = directory->remove(probe);
  if (status.ok()) status = file->preallocate(kProbeBytes);
  if (!status.ok()) return {name, CheckStatus::kMissing, status.message(), "free space on this drive"};
  if (!file->direct()) {
    return {name, CheckStatus::kDegraded, "buffered: " + file->fallback_reason(),
            "use a file system with O_DIRECT (ext4, xfs): the page cache costs memory beyond the budgets"};
  }
  return {name, CheckStatus::kOk,
          fmt::format("O_DIRECT works; memory on {}, offsets and lengths on {}",
                      size_text(file->grid().memory_bytes), size_text(file->grid().offset_bytes)),
          ""};
}

Check check_space(const std::string& path) {
  const std::string name = "space on " + path;
  const auto directory = io::Directory::open(path, io::Access::kReadOnly);
  if (!directory.ok())
    return {name, CheckStatus::kMissing, directory.status().message(), "name a readable directory"};
  const auto space = directory->space();
  if (!space.ok())
    return {name, CheckStatus::kMissing, space.status().message(), "name a directory on a drive"};
  const std::string detail =
      fmt::format("{} of {} available", size_text(space->available_bytes), size_text(space->total_bytes));
  if (space->available_bytes >= kLittleSpaceBytes) return {name, CheckStatus::kOk, detail, ""};
  return {name, CheckStatus::kDegraded, detail,
          "free space: two records a chunk are needed, 24 bytes a parameter"};
}

Check check_device(const std::string& path, std::map<std::string, std::string>& taken) {
  const std::string name = "drive of " + path;
  struct stat information = {};
  if (stat(path.c_str(), &information) != 0) {
    return {name, CheckStatus::kMissing, status_from_errno(errno, "stat " + path).message(),
            "name a directory"};
  }
  const BlockDevice device = find_block_device(path);
  const std::string mount = mount_text(path, device.number);
  const std::string detail =
      mount + "; " + (device.name.empty() ? "no block device of its own" : device.text);
  const auto [other, first] = taken.emplace(device.name.empty() ? device.number : device.name, path);
  if (!first) {
    return {name, CheckStatus::kDegraded, detail + "; the same drive as " + other->second,
            "give each drive one directory: two on one drive share its speed"};
  }
  if (mount.rfind("tmpfs", 0) == 0 || mount.rfind("ramfs", 0) == 0) {
    return {name, CheckStatus::kDegraded, detail, "name a directory on a drive: this one is memory"};
  }
  if (device.text.find(", rotational") != std::string::npos) {
    return {name, CheckStatus::kDegraded, detail, "use a solid-state drive"};
  }
  return {name, CheckStatus::kOk, detail, ""};
}

}  // namespace

std::vector<Check> check_drives(const std::vector<std::string>& directories) {
  std::vector<Check> checks;
  std::map<std::string, std::string> taken;
  for (const std::string& directory : directories) {
    checks.push_back(check_device(directory, taken));
    checks.push_back(check_direct(directory));
    checks.push_back(check_space(directory));
  }
  return checks;
}

}  // namespace sluice::tools
