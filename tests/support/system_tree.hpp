#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_directory.hpp"

namespace sluice::sim {

/// A root with a /proc, a /sys and a /dev of the test's own.
class SystemTree {
 public:
  const std::string& root() const { return directory_.path(); }

  void put(const std::string& path, const std::string& text) const {
    make_folder(std::filesystem::path(path).parent_path().string());
    std::ofstream(root() + path) << text;
  }
  void make_folder(const std::string& path) const { std::filesystem::create_directories(root() + path); }

  /// `path` leads to `target`, which the test also names from the root.
  void link(const std::string& path, const std::string& target) const {
    const std::filesystem::path from = root() + path;
    std::filesystem::create_directories(from.parent_path());
    std::filesystem::create_symlink(
        std::filesystem::path(root() + target).lexically_relative(from.parent_path()), from);
  }

  /// A device in this folder of /sys/devices, and where /sys says that it is.
  void add_device(const std::string& number, const std::string& folder) const {
    const std::string path = "/sys/devices/" + folder;
    put(path + "/dev", number + "\n");
    link("/sys/dev/block/" + number, path);
    link("/sys/class/block/" + std::filesystem::path(folder).filename().string(), path);
  }

  /// `line`: "259:1 / /data rw,relatime - ext4 /dev/nvme0n1p1 rw".
  void mount(const std::string& line) {
    mounts_ += "36 35 " + line + "\n";
    put("/proc/self/mountinfo", mounts_);
  }

 private:
  const TemporaryDirectory directory_;
  std::string mounts_;
};

}  // namespace sluice::sim
