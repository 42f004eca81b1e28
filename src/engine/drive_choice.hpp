#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/directory.hpp"
#include "io/drive_profile.hpp"
#include "io/open_backend.hpp"
#include "sluice/options.hpp"
#include "sluice/stats.hpp"

namespace sluice::engine {

/// See io::probe_drive().
using ProbeDrive =
    std::function<Result<io::DriveProfile>(const io::Directory&, std::span<std::byte> memory, IoBackend)>;

io::BackendKind backend_kind(IoBackend backend);

/// A probe over a backend of its own.
Result<io::DriveProfile> probe_with_backend(const io::Directory& directory, std::span<std::byte> memory,
                                            IoBackend backend);

/// A store from which on drives that nobody has measured are worth a probe: it takes about as long as to write such a
/// store once.
inline constexpr std::uint64_t kProbedStoreBytesMin = 1 << 30;

struct DriveQuestion {
  IoOptions io;
  std::uint64_t store_bytes = 0;         ///< of this rank, on all drives together
  std::uint64_t nvme_budget_bytes = 0;   ///< of it; 0: no limit
  std::uint64_t probe_memory_bytes = 0;  ///< that a probe may take for its moment
  ProbeDrive probe;                      ///< null: no drive is probed
};

/// How requests go to each drive and what each is to take. Shape: one a drive.
struct DriveChoice {
  std::vector<io::DriveSettings> settings;
  std::vector<double> weights;  ///< bytes a second of a step; empty where not all drives are known
  std::vector<DriveStats> stats;
  std::vector<std::string> fallbacks;  ///< for Stats::fallbacks
};

/// Options that are given win over a drive's profile, that over the defaults. A drive without a profile is
/// probed where the options ask for it, one rank and engine at a time, and the profile kept in its directory for
/// the next. What goes wrong with profiles and probes is told, and the defaults are taken.
/// Blocks: for a probe a drive, and for that of another engine.
DriveChoice choose_drives(std::span<const io::Directory> directories, const DriveQuestion& question);

/// The same for a store that was made with the directories in another order. Requires: each is of the choice.
DriveChoice in_order_of(std::span<const std::string> directories, const DriveChoice& choice);

}  // namespace sluice::engine
