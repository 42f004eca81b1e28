#pragma once

#include <cstdint>

namespace sluice::io {

/// How requests go to one drive.
struct DriveSettings {
  std::uint32_t piece_bytes = 1 << 20;  ///< a request's most bytes
  std::uint32_t depth = 32;             ///< requests in flight
  friend bool operator==(const DriveSettings&, const DriveSettings&) = default;
};

}  // namespace sluice::io
