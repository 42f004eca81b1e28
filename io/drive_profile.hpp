#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/directory.hpp"
#include "io/drive_settings.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

/// What a drive was measured to do, and how to ask it.
/// Units: bytes a second of one direction alone; `mixed` both together, one byte read for one written; 0 where
/// it was not measured, at most 10^13. Fractions of a byte are not kept.
struct DriveProfile {
  DriveSettings settings;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double mixed_bytes_per_s = 0;
  std::string measured_by;  ///< "probe", "tune", "run"
  std::string measured_on;  ///< the day, "2026-11-30"
};

/// The file in a directory that keeps its drive's profile: text, a line a field, with the identity of the drive
/// it was measured on and a checksum.
inline constexpr std::string_view kProfileName = ".sluice-drive";

/// What tells the drive under a directory from others: its device number, its name, model, size and serial
/// number as far as /sys tells, and the file system's identity. A directory copied to another drive differs.
/// One line of printable characters.
/// Errors: kIoError with the errno.
Result<std::string> drive_identity(const Directory& directory);

/// Returns: nothing where there is no profile, where it was measured on another drive, or where it is damaged or
/// of another version: `why_not`, if given, then says which. A file that is a link, or anything but a regular
/// file, is not followed and counts as damaged.
/// Errors: kIoError.
Result<std::optional<DriveProfile>> load_profile(const Directory& directory, std::string* why_not = nullptr);

/// Replaces the directory's profile, whole or not at all, mode 0600.
/// Errors: kInvalidArgument for numbers or words that load_profile() would not take; as writing a file.
Status save_profile(const Directory& directory, const DriveProfile& profile);

/// Today in UTC, for `measured_on`.
std::string today();

}  // namespace sluice::io
