#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/file.hpp"

namespace sluice::io {

/// Where bytes live: a drive of the volume and an offset in its file.
struct Place {
  std::uint32_t drive = 0;
  std::uint64_t offset = 0;
  friend bool operator==(Place, Place) = default;
};

/// The drives that a store is spread over, one container file each.
/// Lifetime: files keep their address while the volume lives, transfers may point at them.
class Volume {
 public:
  /// Requires: at least one file.
  explicit Volume(std::vector<File> files);

  std::uint32_t drive_count() const { return static_cast<std::uint32_t>(files_.size()); }
  File& file(std::uint32_t drive) { return files_[drive]; }
  const File& file(std::uint32_t drive) const { return files_[drive]; }

  /// The coarsest grid of all drives: what is laid out on it may live on any of them.
  Grid grid() const { return grid_; }

 private:
  std::vector<File> files_;
  Grid grid_;
};

}  // namespace sluice::io
