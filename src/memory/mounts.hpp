#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::memory {

/// One mount of a file system, as this process sees it.
struct Mount {
  std::string device;         ///< "259:1"; "0:26" where the file system has no block device of its own
  std::string top;            ///< the folder of the file system that is seen at `point`
  std::string point;          ///< where it is mounted
  std::string options;        ///< of this mount: "rw,relatime"
  std::string type;           ///< "ext4"
  std::string source;         ///< "/dev/nvme0n1p1"
  std::string super_options;  ///< of the file system: "rw,data=ordered"
};

/// <root>/proc/self/mountinfo; lines that cannot be parsed are left out.
/// Source: proc_pid_mountinfo(5).
std::vector<Mount> read_mounts(const std::string& root = "");

/// The mount that an absolute path without links is on: of those above it the deepest, of several at one point
/// the last, which hides the others.
std::optional<Mount> mount_of(std::span<const Mount> mounts, std::string_view path);

/// Whether `word` is one of the words between the commas.
bool lists(std::string_view comma_separated, std::string_view word);

}  // namespace sluice::memory
