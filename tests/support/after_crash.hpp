#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::sim {

/// Copies a drive's directory as the next process would find it if this one died now: every byte that is in the files,
/// and stores whose owner is gone.
inline void copy_after_crash(const std::string& source, const std::string& target) {
  namespace fs = std::filesystem;
  fs::copy(source, target, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(target)) {
    if (entry.path().filename() != "owner") continue;
    // No process has this number: it is beyond the kernel's largest.
    std::ofstream(entry.path()) << "pid 999999999\nstart 1\nnonce 0000000000000001\n";
  }
}

}  // namespace sluice::sim
