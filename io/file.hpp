#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/directory.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

/// What addresses, offsets and lengths must be multiples of; powers of two, 1 for a buffered file.
struct Grid {
  std::uint32_t memory_bytes = 1;
  std::uint32_t offset_bytes = 1;  ///< of offsets and of lengths
};

enum class Caching : std::uint8_t {
  kDirect,  ///< O_DIRECT, or buffered with a reason where the file system refuses it
  kBuffered,
};

struct FileOptions {
  Access access = Access::kReadWrite;
  Creation creation = Creation::kNever;
  Caching caching = Caching::kDirect;
};

/// An open regular file, mode 0600 when made here; never a followed link; closed on exec and on destruction.
/// Invariant: direct() or grid() == {1, 1}.
/// Threads: const members from any; the others from one at a time.
class File {
 public:
  /// Errors: missing kNotFound, taken (kExclusive) kAlreadyExists, a link or anything but a regular file
  /// kFailedPrecondition; all name the path.
  static Result<File> open(const Directory& directory, const std::string& name, const FileOptions& options);

  /// An empty file for reading and writing that has no name, so that nothing of it stays however the process
  /// ends. Errors: as open().
  static Result<File> open_unnamed(const Directory& directory, Caching caching = Caching::kDirect);

  /// Gives the file this size with every block reserved and reading as zeros where it was not written; never
  /// shrinks. May end direct(): an empty file shows only now whether the file system takes O_DIRECT. Errors:
  /// kNoSpace with the bytes needed and available; the file then has its earlier size. Blocks: on the drive;
  /// for long where the file system cannot reserve and zeros are written.
  Status preallocate(std::uint64_t bytes);

  Result<std::uint64_t> size() const;

  /// fdatasync. After a failure nothing is known about what the drive holds.
  Status flush() const;

  /// Reads all of `target` from `offset`, on any alignment.
  /// Errors: kDataLoss when the file ends before.
  /// Blocks: on the drive; meant for small metadata.
  Status read_exact(std::uint64_t offset, std::span<std::byte> target) const;

  /// Writes all of `source` at `offset`, on any alignment. A direct file grows to a multiple of its grid, and
  /// the bytes around an unaligned end are read and written back. Blocks: on the drive; meant for small
  /// metadata.
  Status write_exact(std::uint64_t offset, std::span<const std::byte> source) const;

  /// The failure of an operation on this file. EINVAL says what direct I/O on its grid means: a file system that
  /// took it when it was probed may still refuse a later request, and no read or write that has begun is moved
  /// to the page cache behind the caller's back.
  Status failure(int error, std::string_view doing) const;

  bool direct() const { return direct_; }
  /// Why a file asked to be direct is buffered; empty otherwise.
  const std::string& fallback_reason() const { return fallback_reason_; }
  Grid grid() const { return grid_; }
  int fd() const { return fd_.get(); }
  /// For messages.
  const std::string& path() const { return path_; }

 private:
  File(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  enum class Probe : std::uint8_t { kRead, kWriteZeros };

  void start_direct();
  void probe_direct(Probe probe);
  void fall_back(std::string reason);
  Status reserve(std::uint64_t size_bytes, std::uint64_t bytes);
  Status no_space(std::uint64_t needed_bytes, std::uint64_t available_bytes, int error) const;

  Descriptor fd_;
  std::string path_;
  bool direct_ = false;
  Grid grid_;
  std::string fallback_reason_;
};

}  // namespace sluice::io
