#pragma once

#include <cstdint>

namespace sluice::io {

/// Where bytes live: one of several drives and an offset in its file.
struct Place {
  std::uint32_t drive = 0;
  std::uint64_t offset = 0;
  friend bool operator==(Place, Place) = default;
};

}  // namespace sluice::io
