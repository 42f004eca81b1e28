#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace sluice::sim {

/// Where a temporary directory lies.
enum class Beneath {
  kTemporary,  ///< TMPDIR or /tmp: usually a drive
  kMemory,     ///< /dev/shm where there is one: for simulated drives, whose files nobody waits for
};

/// A directory that lives as long as the object.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(Beneath beneath = Beneath::kTemporary)
      : path_((parent(beneath) / "sluice-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary directory at " + path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  static std::filesystem::path parent(Beneath beneath) {
    const std::filesystem::path memory = "/dev/shm";
    return beneath == Beneath::kMemory && std::filesystem::is_directory(memory)
               ? memory
               : std::filesystem::temp_directory_path();
  }

  std::string path_;
};

}  // namespace sluice::sim
