#pragma once

#include <cstdint>
#include <span>

#include "io/backend.hpp"
#include "io/directory.hpp"
#include "io/drive_profile.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

struct ProbeOptions {
  std::uint64_t file_bytes = 128 << 20;  ///< of real data written and read back
  double seconds_max = 0.5;              ///< tries that have not begun by then are left out
};

/// Measures a drive for a moment: writes a file without a name in `directory`, then reads, writes and mixes it at
/// a few depths and piece sizes.
/// Requires: `memory` on the file's grid, at least 16 MiB; nothing else uses the backend. Lifetime: nothing stays
/// in the directory, however the process ends.
/// Errors: kNoSpace, kIoError; kFailedPrecondition where the file is buffered: the page cache would be measured.
/// Blocks: for about seconds_max and the writing of the file.
Result<DriveProfile> probe_drive(Backend& backend, const Directory& directory, std::span<std::byte> memory,
                                 const ProbeOptions& options);

}  // namespace sluice::io
