#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.hpp"

namespace sluice::io {

enum class Access : std::uint8_t { kReadOnly, kReadWrite };

enum class Creation : std::uint8_t {
  kNever,      ///< must exist
  kIfMissing,  ///< opened, or made
  kExclusive,  ///< must not exist
};

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const { return fd_; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

struct Space {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes = 0;  ///< to this user
};

/// An open directory: what is reached through it stays the same place after a chdir or a rename above it.
/// Its names are single components, links are never followed through it.
class Directory {
 public:
  /// Opens `path`, which may itself be a link to a directory.
  /// Errors, each naming the path: missing kNotFound; a link to nothing kNotFound; something else than a
  /// directory kFailedPrecondition; not readable, or with kReadWrite not writable (permissions, read-only
  /// file system) kFailedPrecondition with native EACCES or EROFS.
  static Result<Directory> open(const std::string& path, Access access);

  /// Opens, or makes with mode 0700, the directory `name` inside this one.
  Result<Directory> subdirectory(const std::string& name, Creation creation) const;

  /// The same directory, open once more: an flock(2) of one keeps the other out.
  Result<Directory> reopen() const;

  /// Names inside, sorted, without "." and "..".
  Result<std::vector<std::string>> names() const;

  /// Makes a file's name durable: after creating, renaming or removing.
  Status sync() const;
  /// Removes a file, or an empty directory.
  Status remove(const std::string& name) const;
  /// Replaces `target` atomically.
  Status rename(const std::string& source, const std::string& target) const;

  Result<Space> space() const;

  int fd() const { return fd_.get(); }
  /// The path as it was opened, for messages.
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const;

 private:
  Directory(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Descriptor fd_;
  std::string path_;
};

}  // namespace sluice::io
