#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "store/store_reader.hpp"
#include "tools/claimed_store.hpp"

namespace sluice::tools {

/// A plane's part that is not what was committed.
struct FoundBad {
  store::BadPlane plane;
  /// The newest older commit that was read as well and has a good copy of that range.
  std::optional<std::uint64_t> good_in;
};

struct VerifiedCommit {
  std::uint64_t number = 0;
  std::vector<FoundBad> bad;
};

struct VerifyReport {
  std::vector<VerifiedCommit> commits;  ///< newest first
  std::uint64_t bytes_read = 0;         ///< what several commits share is read for each
  bool ok() const;
};

enum class VerifyScope : std::uint8_t { kAllCommits, kChosenCommit };

/// Reads every plane of the store's usable commits, or of the chosen one alone, and holds it against its checksums.
/// `on_progress` hears the bytes read so far; an error from it ends the work.
/// Blocks: on the drives.
Result<VerifyReport> verify_store(ClaimedStore& claimed, VerifyScope scope,
                                  const std::function<Status(std::uint64_t bytes_read)>& on_progress);

}  // namespace sluice::tools
