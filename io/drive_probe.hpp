#pragma once

#include <cstddef>
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

/// The least that probe_drive() takes.
inline constexpr std::uint64_t kProbeMemoryBytesMin = 16 << 20;
inline constexpr std::uint64_t kProbeFileBytesMin = 32 << 20;
/// The depth that a backend must have for the probe to try all it knows.
inline constexpr std::uint32_t kProbeDepth = 32;

/// Measures a drive for a moment: writes a file without a name in `directory`, then reads and writes it at once
/// with pieces of 256 KiB, 1 MiB and 4 MiB at depths of 4 to 32. The settings are those with the fewest bytes in
/// flight that reach 0.97 of the best rate (of equal ones the smaller pieces, whose depth suits small transfers
/// too); the rates are theirs, watched for longer than a burst. What the file's first read would show, of data that no cache holds yet, is not
/// counted, and more than kProbeSecondsInFlight of work is never in flight.
/// Requires: `memory` on the file's grid, at least kProbeMemoryBytesMin; nothing else uses the backend.
/// Errors: kInvalidArgument for too little memory or too small a file; kNoSpace, kIoError; kFailedPrecondition
/// where the file is buffered: the page cache would be measured. Lifetime: nothing stays in the directory,
/// however the process ends.
/// Blocks: for about 5 seconds_max and the writing and reading of the file.
Result<DriveProfile> probe_drive(Backend& backend, const Directory& directory, std::span<std::byte> memory,
                                 const ProbeOptions& options);
inline constexpr double kProbeSecondsInFlight = 0.02;

}  // namespace sluice::io
