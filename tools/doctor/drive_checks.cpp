#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <map>
#include <set>

#include "io/directory.hpp"
#include "io/drive_profile.hpp"
#include "io/file.hpp"
#include "memory/drive_tree.hpp"
#include "tools/block_device.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kProbeBytes = 1 << 20;
constexpr std::uint64_t kLittleSpaceBytes = 1 << 30;

CopyOnWrite copying_in(const std::string& directory) {
  const io::Descriptor fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int attributes = 0;
  if (fd.get() < 0 || ioctl(fd.get(), FS_IOC_GETFLAGS, &attributes) != 0) return CopyOnWrite::kUnknown;
  return (attributes & FS_NOCOW_FL) != 0 ? CopyOnWrite::kOff : CopyOnWrite::kUnknown;
}

// The tightest limit on any of the layers: what is set on a mapping holds as well as what is set on its drive.
memory::DriveLimits limits_on(const memory::BlockDevice& device, const std::string& root) {
  memory::DriveLimits limits = memory::read_drive_limits(device.number, root);
  for (const memory::BlockDevice& part : device.below)
    limits = memory::tightest(limits, limits_on(part, root));
  return limits;
}

Check check_direct(const std::string& path) {
  const std::string name = "direct I/O on " + path;
  auto directory = io::Directory::open(path, io::Access::kReadWrite);
  if (!directory.ok()) {
    return {name, CheckStatus::kMissing, directory.status().message(),
            "name a directory that can be written"};
  }
  auto file = io::File::open_unnamed(*directory);
  if (!file.ok())
    return {name, CheckStatus::kMissing, file.status().message(), "make the directory writable"};
  const Status status = file->preallocate(kProbeBytes);
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

Check check_device(const std::string& path, const memory::DrivePlace& place,
                   std::map<std::string, std::string>& taken) {
  Findings findings;
  if (!place.device) {
    const std::string what = "no block device of its own";
    if (!place.mount) {
      findings.add(what, "name a directory that exists");
    } else if (const auto [other, first] = taken.emplace(place.mount->device, path); !first) {
      findings.add(what + ", the same file system as " + other->second, "give each drive one directory");
    } else {
      findings.add(what);
    }
    return findings.check("drive of " + path);
  }
  findings.add(describe_device(*place.device));
  add_device_findings(*place.device, findings);
  for (const memory::BlockDevice* drive : memory::attached_devices(*place.device)) {
    const auto [other, first] = taken.emplace(drive->number, path);
    if (!first && other->second != path)
      findings.add(fmt::format("{} is the drive of {} as well", drive->name, other->second),
                   "give each drive one directory: two on one drive share its speed");
  }
  return findings.check("drive of " + path);
}

Check check_profile(const std::string& path) {
  const std::string name = "drive profile of " + path;
  const std::string tune = "sluice nvme --tune --dir " + path;
  const auto directory = io::Directory::open(path, io::Access::kReadOnly);
  if (!directory.ok())
    return {name, CheckStatus::kMissing, directory.status().message(), "name a readable directory"};
  std::string why_not;
  const auto profile = io::load_profile(*directory, &why_not);
  if (!profile.ok()) return {name, CheckStatus::kDegraded, profile.status().message(), tune};
  if (!*profile) {
    return {
        name, CheckStatus::kDegraded,
        fmt::format("none{}; an engine probes the drive for a moment", why_not.empty() ? "" : ": " + why_not),
        tune};
  }
  const io::DriveProfile& known = **profile;
  const std::string detail = fmt::format(
      "by {} on {}: depth {}, pieces of {}; reads {}/s, writes {}/s, both {}/s", known.measured_by,
      known.measured_on, known.settings.depth, size_text(known.settings.piece_bytes),
      size_text(static_cast<std::uint64_t>(known.read_bytes_per_s)),
      size_text(static_cast<std::uint64_t>(known.write_bytes_per_s)),
      size_text(static_cast<std::uint64_t>(known.mixed_bytes_per_s)));
  return {name, CheckStatus::kOk, detail, ""};
}

}  // namespace

Check judge_drive_limits(const std::string& directory, const memory::DriveLimits& limits) {
  Findings findings;
  std::set<std::string> files;
  const auto add = [&](const memory::DriveLimit& limit, const char* what, const std::string& amount) {
    if (limit.per_s == memory::kNoLimit) return;
    const std::string text = fmt::format("{} {}/s", what, amount);
    if (files.insert(limit.file).second) {
      findings.add(text, "raise " + limit.file);
    } else {
      findings.add(text);
    }
  };
  add(limits.read_bytes, "reads", size_text(limits.read_bytes.per_s));
  add(limits.write_bytes, "writes", size_text(limits.write_bytes.per_s));
  add(limits.reads, "read requests", fmt::format("{}", limits.reads.per_s));
  add(limits.writes, "write requests", fmt::format("{}", limits.writes.per_s));
  if (files.empty()) findings.add("the control group sets none");
  Check check = findings.check("I/O limits on " + directory);
  if (!files.empty())
    check.remedy +=
        " (systemd: IOReadBandwidthMax=, IOWriteBandwidthMax=; a container: --device-read-bps, "
        "--device-write-bps)";
  return check;
}

std::vector<Check> check_drives(const Machine& machine, const std::vector<std::string>& directories) {
  std::vector<Check> checks;
  std::map<std::string, std::string> taken;
  for (const std::string& directory : directories) {
    const memory::DrivePlace place = memory::find_drive(directory, machine.root);
    checks.push_back(check_device(directory, place, taken));
    checks.push_back(judge_file_system(directory, place.mount, copying_in(directory)));
    checks.push_back(judge_drive_limits(
        directory, place.device ? limits_on(*place.device, machine.root) : memory::DriveLimits{}));
    checks.push_back(check_direct(directory));
    checks.push_back(check_space(directory));
    checks.push_back(check_profile(directory));
  }
  return checks;
}

}  // namespace sluice::tools
