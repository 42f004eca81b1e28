#include "io/volume.hpp"

#include <algorithm>
#include <utility>

namespace sluice::io {

Volume::Volume(std::vector<File> files) : files_(std::move(files)) {
  for (const File& file : files_) {
    grid_.memory_bytes = std::max(grid_.memory_bytes, file.grid().memory_bytes);
    grid_.offset_bytes = std::max(grid_.offset_bytes, file.grid().offset_bytes);
  }
}

}  // namespace sluice::io
