#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/doctor/checks.hpp"

namespace sluice::tools {
namespace {

template <std::size_t kCount>
bool is_one_of(std::string_view type, const std::array<std::string_view, kCount>& types) {
  return std::ranges::find(types, type) != types.end();
}

constexpr std::array<std::string_view, 3> kMemory = {"tmpfs", "ramfs", "devtmpfs"};
constexpr std::array<std::string_view, 12> kRemote = {
    "nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "gpfs", "9p", "virtiofs", "afs", "beegfs"};
constexpr std::array<std::string_view, 4> kSimple = {"vfat", "exfat", "ntfs3", "msdos"};

void add_type_findings(const memory::Mount& mount, Findings& findings) {
  if (is_one_of(mount.type, kMemory))
    findings.add("this is memory", "name a directory on a drive");
  else if (is_one_of(mount.type, kRemote) || mount.type.starts_with("fuse"))
    findings.add("it is not this machine's own, or another program's", "name a directory on a local drive");
  else if (mount.type == "overlay")
    findings.add("a container's layers", "mount a drive into the container (docker run -v), and name that");
  else if (is_one_of(mount.type, kSimple))
    findings.add("it reserves no space ahead", "mkfs.ext4 or mkfs.xfs");
  else if (mount.type == "ecryptfs")
    findings.add("it encrypts, which costs CPU time a byte", "name a directory outside of it");
}

void add_copying_findings(const memory::Mount& mount, CopyOnWrite copying, Findings& findings) {
  if (mount.type == "zfs" || mount.type == "bcachefs") {
    findings.add("it copies on write, and caches what O_DIRECT moves",
                 mount.type == "zfs"
                     ? "ext4 or xfs; else zfs set compression=off recordsize=1M " + mount.source
                     : std::string("ext4 or xfs"));
    return;
  }
  if (mount.type != "btrfs") return;
  const bool compresses = mount.super_options.find("compress") != std::string::npos &&
                          mount.super_options.find("compress=none") == std::string::npos &&
                          mount.super_options.find("compress=no") == std::string::npos;
  if (compresses && copying != CopyOnWrite::kOff)
    findings.add("btrfs compresses: direct I/O is buffered",
                 fmt::format("mount -o remount,compress=none {}", mount.point));
  if (memory::lists(mount.super_options, "nodatacow") || copying == CopyOnWrite::kOff)
    findings.add("copies on write: off");
  else
    findings.add("btrfs copies on write, and checks sums",
                 "chattr +C on the empty directory; or ext4 or xfs");
}

}  // namespace

Check judge_file_system(const std::string& directory, const std::optional<memory::Mount>& mount,
                        CopyOnWrite copying) {
  const std::string name = "file system of " + directory;
  if (!mount) {
    return {name, CheckStatus::kDegraded, "not known: /proc/self/mountinfo does not tell",
            "mount /proc, and name a directory that exists"};
  }
  Findings findings;
  findings.add(fmt::format("{} from {} at {}, {}{}{}", mount->type, mount->source, mount->point,
                           mount->options, mount->super_options.empty() ? "" : ", of the file system ",
                           mount->super_options));
  add_type_findings(*mount, findings);
  add_copying_findings(*mount, copying, findings);
  const auto has = [&](std::string_view option) {
    return memory::lists(mount->options, option) || memory::lists(mount->super_options, option);
  };
  if (has("ro")) findings.add("it is read-only", "mount -o remount,rw " + mount->point);
  if (has("sync") || has("dirsync"))
    findings.add("every write waits for the drive", "mount -o remount,async " + mount->point);
  if (has("data=journal"))
    findings.add(
        "data is written twice, and O_DIRECT is buffered",
        "unmount it and mount it with data=ordered (tune2fs -o journal_data_ordered " + mount->source + ")");
  if (has("nobarrier") || has("barrier=0"))
    findings.add("a flush does not reach the drive: a commit may not outlast a power cut",
                 "mount -o remount,barrier=1 " + mount->point);
  return findings.check(name);
}

}  // namespace sluice::tools
