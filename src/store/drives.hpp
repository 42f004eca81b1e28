#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/directory.hpp"
#include "sluice/status.hpp"
#include "store/lock.hpp"

namespace sluice::store {

/// The drives' directories of one rank, open: a later chdir changes nothing.
class Drives {
 public:
  /// Errors: kInvalidArgument for no directory or one named twice; a directory that is missing, not a
  /// directory, a link to nothing or not writable as io::Directory::open says.
  static Result<Drives> open(std::span<const std::string> paths, io::Access access);

  std::span<const io::Directory> directories() const { return directories_; }

  /// Holds every directory's NamesGuard until the result is dropped: what is found in them stays as it was
  /// found. Taken in an order of their own, so that engines that name the same drives in different orders do
  /// not wait for each other. Not to be held where another rank of this directory is waited for, nor where a
  /// Store is closed. Blocks, Errors: as NamesGuard::acquire.
  Result<std::vector<NamesGuard>> guard() const;

  /// The grid that chunks must be laid out on to live in any of these directories: 4096, or more where a
  /// drive's direct I/O asks for it. Makes and removes a small file in each.
  Result<std::uint32_t> grid() const;

 private:
  explicit Drives(std::vector<io::Directory> directories) : directories_(std::move(directories)) {}

  std::vector<io::Directory> directories_;
  std::vector<std::size_t> guard_order_;  // by identity of the directory
};

}  // namespace sluice::store
