#pragma once

#include <span>

#include "store/existing.hpp"

namespace sluice::store {

/// Drives that have a superblock, which are the first ones.
std::span<ExistingDrive> drives_of(ExistingRank& rank);

/// Reads catalog and commit records of a rank whose drives are put together.
/// Requires: rank.superblock, which keeps commits.
/// Errors: those of find_existing() for what the superblock speaks of.
/// Blocks: on the drives.
Status read_tables(ExistingRank& rank);

}  // namespace sluice::store
