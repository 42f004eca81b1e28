#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "io/backend.hpp"

namespace sluice::sim {

/// What a drive does: one request after the other at a rate, each told of a latency later.
struct Pace {
  double read_bytes_per_s = 1e9;
  double write_bytes_per_s = 1e9;
  std::int64_t latency_ns = 0;
};

/// Drives on the clock of a simulation, told apart by the directory that a file is in. For SimOptions::delay_ns.
class PacedDrives {
 public:
  struct Drive {
    std::string directory;
    Pace pace;
    std::int64_t busy_until_ns = 0;
    std::uint64_t bytes_read = 0, bytes_written = 0;  ///< asked for
  };

  void add(std::string directory, Pace pace) { drives_.push_back({std::move(directory), pace}); }
  Drive& operator[](std::size_t drive) { return drives_[drive]; }

  std::int64_t delay_ns(const io::Request& request, std::int64_t now_ns) {
    for (Drive& drive : drives_) {
      if (!inside(request.fd, drive.directory)) continue;
      if (request.op != io::Op::kRead && request.op != io::Op::kWrite) return drive.pace.latency_ns;
      const bool read = request.op == io::Op::kRead;
      (read ? drive.bytes_read : drive.bytes_written) += request.bytes;
      const double rate = read ? drive.pace.read_bytes_per_s : drive.pace.write_bytes_per_s;
      const std::int64_t begin_ns = std::max(now_ns, drive.busy_until_ns);
      drive.busy_until_ns =
          begin_ns + static_cast<std::int64_t>(static_cast<double>(request.bytes) / rate * 1e9);
      return drive.busy_until_ns + drive.pace.latency_ns - now_ns;
    }
    return 0;
  }

 private:
  /// Also a file that has no name any more.
  static bool inside(int fd, const std::string& directory) {
    std::error_code error;
    const std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
    return path.starts_with(directory + "/");
  }

  std::vector<Drive> drives_;
};

}  // namespace sluice::sim
