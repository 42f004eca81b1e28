#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/directory.hpp"
#include "io/file.hpp"
#include "sluice/status.hpp"

namespace sluice::store {

/// Who holds a lock, for the refusal of the next one.
struct Owner {
  std::int64_t pid = 0;
  /// Of the process after boot, so that a reused pid is another owner. From kNoTicks on: a random number, one
  /// a process, where /proc does not tell. 0: unknown.
  std::uint64_t start_ticks = 0;
  std::uint64_t nonce = 0;   ///< random, one an engine
  std::string boot_id = {};  ///< of the machine, so that pid and ticks of an earlier boot are another owner;
                             ///< "": unknown
  static constexpr std::uint64_t kNoTicks = std::uint64_t{1} << 63;

  /// This process and a new nonce.
  static Owner make();
  /// An owner whose start is unknown is never this process.
  bool is_this_process() const;
  /// Whether the process runs, as far as can be seen from here. One whose start cannot be compared counts as
  /// running if another process has its pid.
  bool lives() const;
  friend bool operator==(const Owner&, const Owner&) = default;
};

/// "pid <n>\nstart <ticks>\nnonce <hexadecimal>\n", then "boot <id>\n" where it is known.
std::string encode(const Owner& owner);
/// Returns: nothing for anything else.
std::optional<Owner> parse_owner(std::string_view text);

/// Who holds the lock of a rank's directory; nothing if nobody does. Changes nothing.
Result<std::optional<Owner>> live_owner(const io::Directory& rank_directory);

/// Keeps other engines, of this or another process, from looking into or changing the names under a drive's
/// directory. Held for moments only: while a store is looked for, claimed or removed.
class NamesGuard {
 public:
  /// Blocks: while another holds it, at most kPatience.
  /// Errors: kFailedPrecondition when that takes too long. Where the file system has no flock(2) it excludes
  /// nobody, the record lock remains.
  static Result<NamesGuard> acquire(const io::Directory& directory);
  ~NamesGuard();
  NamesGuard(NamesGuard&& other) noexcept;
  NamesGuard& operator=(NamesGuard&&) = delete;

 private:
  explicit NamesGuard(int fd) : fd_(fd) {}
  int fd_ = -1;  // the directory's
};

/// The right to use a rank's directory: a POSIX record lock on `lock`, which dies with its process and is not
/// inherited by fork. It does not keep two engines of one process apart and any close of the file in this
/// process would drop it, so `owner` is read first and an owner of this process is refused before the file is
/// opened. Lifetime: the destructor gives it up and takes the signature back, under the drive's NamesGuard
/// where another engine may be looking; in a forked child it does nothing to the parent's.
class Lock {
 public:
  /// Locks an existing `lock`, or makes it. One that is gone while its owner lives is not made again: a lock
  /// on the new file would not meet the owner's.
  /// Requires: the caller holds the drive's NamesGuard.
  /// Errors: kFailedPrecondition naming the live owner; with kNever kNotFound if there is no lock.
  static Result<Lock> acquire(const io::Directory& rank_directory, io::Creation creation);
  ~Lock();
  Lock(Lock&& other) noexcept;
  Lock& operator=(Lock&& other) noexcept;

  /// Writes `owner` beside the lock, over a dead one's.
  Status sign(const Owner& owner);

 private:
  Lock(io::Directory directory, io::File file);
  void release();

  io::Directory directory_;
  std::optional<io::File> file_;  // none: moved away
  std::optional<Owner> owner_;    // as signed
};

}  // namespace sluice::store
