#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/drive_profile.hpp"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFieldBytesMax = 256;

/// The first line of a small file of /sys, in quotes, with whatever is not printable as a dot; empty when it
/// cannot be read.
std::string field(const fs::path& path) {
  std::array<char, kFieldBytesMax> text;
  std::ifstream file(path);
  file.read(text.data(), text.size());
  std::string line(text.data(), static_cast<std::size_t>(file.gcount()));
  line.resize(std::min(line.find('\n'), line.size()));
  line.erase(line.find_last_not_of(' ') + 1);
  for (char& letter : line)
    if (letter < ' ' || letter > '~' || letter == '"') letter = '.';
  return line.empty() ? line : '"' + line + '"';
}

}  // namespace

Result<std::string> drive_identity(const Directory& directory) {
  const std::string doing = fmt::format("asking which drive {} is on", directory.path());
  struct stat found;
  if (::fstat(directory.fd(), &found) != 0) return status_from_errno(errno, doing);
  struct statfs system;
  if (::fstatfs(directory.fd(), &system) != 0) return status_from_errno(errno, doing);
  std::array<std::uint32_t, sizeof system.f_fsid / sizeof(std::uint32_t)> id;
  std::memcpy(id.data(), &system.f_fsid, sizeof id);

  const std::string number = fmt::format("{}:{}", major(found.st_dev), minor(found.st_dev));
  std::string identity =
      fmt::format("device {} file_system {:x} {:08x}", number, system.f_type, fmt::join(id, ""));
  std::error_code error;
  fs::path drive = fs::canonical("/sys/dev/block/" + number, error);
  if (error) return identity;  // in memory, over a network or over other file systems
  if (fs::exists(drive / "partition", error)) drive = drive.parent_path();
  identity += " drive " + drive.filename().string();
  for (const std::string_view name : {"size", "serial", "wwid", "device/model", "device/serial",
                                      "device/wwid", "dm/uuid", "md/uuid", "loop/backing_file"}) {
    if (const std::string value = field(drive / name); !value.empty())
      identity += fmt::format(" {} {}", name, value);
  }
  return identity;
}

}  // namespace sluice::io
