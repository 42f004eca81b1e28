#pragma once

#include <cstdint>

#include "io/directory.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice::store {

struct ExistingOptions {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  OnExisting existing = OnExisting::kRecover;
};

/// Makes room for a new store of this rank in a drive's directory: what dead scratch runs left there is
/// removed (never read), everything else is left untouched and refused. Each rank answers for the old ranks
/// that are equal to its own modulo the world, so a larger old world leaves nothing behind. Files, links and
/// directories of other users are not looked into. Requires: the caller holds the directory's NamesGuard.
/// Errors: kFailedPrecondition naming the process of a live store; kAlreadyExists for a store that holds
/// commits, for any store under kRefuse, and for one with files beside it that are not a store's; kDataLoss
/// or kUnimplemented for one that this version cannot tell what it is.
Status clear_existing(const io::Directory& directory, const ExistingOptions& options);

/// Removes a rank's own files and directory, and the store's when it was the last rank's. Names that are gone
/// are no error. Requires: the caller holds the rank's Lock and the drive's NamesGuard.
Status remove_rank(const io::Directory& directory, const io::Directory& store, const io::Directory& rank);

}  // namespace sluice::store
