#include "io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "io/random.hpp"

namespace sluice::io {
namespace {

// Tried in turn when the kernel does not tell: 4 KiB pages, 16 KiB and 64 KiB ones.
constexpr std::uint32_t kGrids[] = {4096, 16384, 65536};
constexpr std::size_t kBounceBytes = std::size_t{1} << 20;
constexpr int kMaxTries = 1000;    // of EINTR and EAGAIN in a row
constexpr int kMaxStuckTries = 3;  // less than a grid moved each time: the end of the file

constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t grid) { return value / grid * grid; }
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t grid) {
  return round_down(value + grid - 1, grid);
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Bounce = std::unique_ptr<std::byte, Free>;

/// `bytes` zeros on any grid.
Bounce zeros(std::size_t bytes) {
  Bounce memory(static_cast<std::byte*>(std::aligned_alloc(kGrids[2], round_up(bytes, kGrids[2]))));
  if (memory != nullptr) std::memset(memory.get(), 0, bytes);
  return memory;
}

struct Extent {
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
};

/// Repeats `call(done_bytes)` until everything, or at a read the end of the file, is reached.
/// Requires: the extent on the file's grid; calls go on from points on it.
/// Returns: the bytes moved.
template <class Call>
Result<std::size_t> move_all(const File& file, Extent extent, const std::string& doing, Call call) {
  const std::uint32_t grid = file.grid().offset_bytes;
  std::size_t done = 0;
  for (int tries = 0; done < extent.bytes;) {
    const ssize_t moved = call(done);
    if (moved < 0) {
      const int error = errno;
      const bool transient = error == EINTR || error == EAGAIN;
      if (!transient || ++tries == kMaxTries) return file.failure(error, doing);
      if (error == EAGAIN) ::sched_yield();
      continue;
    }
    const std::size_t kept = round_down(static_cast<std::uint64_t>(moved), grid);
    if (done + static_cast<std::size_t>(moved) >= extent.bytes) return extent.bytes;
    if (kept == 0) {
      if (moved == 0 || ++tries >= kMaxStuckTries) return done + static_cast<std::size_t>(moved);
      continue;
    }
    done += kept;
    tries = 0;
  }
  return done;
}

Result<std::size_t> read_all(const File& file, Extent extent, std::byte* target) {
  const auto doing =
      fmt::format("read of {} bytes at offset {} of {}", extent.bytes, extent.offset, file.path());
  return move_all(file, extent, doing, [&](std::size_t done) {
    return ::pread(file.fd(), target + done, extent.bytes - done, static_cast<off_t>(extent.offset + done));
  });
}

Status write_all(const File& file, Extent extent, const std::byte* source) {
  const auto doing =
      fmt::format("write of {} bytes at offset {} of {}", extent.bytes, extent.offset, file.path());
  const Result<std::size_t> moved = move_all(file, extent, doing, [&](std::size_t done) {
    return ::pwrite(file.fd(), source + done, extent.bytes - done, static_cast<off_t>(extent.offset + done));
  });
  if (!moved.ok()) return moved.status();
  return *moved == extent.bytes ? Status() : status_from_errno(EIO, doing);
}

bool on_grid(Grid grid, Extent extent, const std::byte* memory) {
  return extent.offset % grid.offset_bytes == 0 && extent.bytes % grid.offset_bytes == 0 &&
         reinterpret_cast<std::uintptr_t>(memory) % grid.memory_bytes == 0;
}

/// The extent on the grid around `extent`. 5000 bytes at 100 on 4096 lie in 8192 bytes at 0.
Extent widen(Extent extent, std::uint32_t grid) {
  const std::uint64_t begin = round_down(extent.offset, grid);
  return {begin, static_cast<std::size_t>(round_up(extent.offset + extent.bytes, grid) - begin)};
}

Status truncated(const File& file, Extent extent) {
  return Status(Code::kDataLoss,
                fmt::format("read of {} bytes at offset {} of {}: truncated, the file ends before",
                            extent.bytes, extent.offset, file.path()));
}

int open_flags(const FileOptions& options) {
  int flags = O_CLOEXEC | O_NOFOLLOW | (options.access == Access::kReadWrite ? O_RDWR : O_RDONLY);
  if (options.creation != Creation::kNever) flags |= O_CREAT;
  if (options.creation == Creation::kExclusive) flags |= O_EXCL;
  return flags;
}

}  // namespace

Result<File> File::open(const Directory& directory, const std::string& name, const FileOptions& options) {
  const std::string path = directory.path_of(name);
  Descriptor fd(::openat(directory.fd(), name.c_str(), open_flags(options), 0600));
  if (fd.get() < 0) {
    const int error = errno;
    if (error == ELOOP)
      return Status(Code::kFailedPrecondition, path + ": a link, which is not followed", error);
    if (error == EISDIR)
      return Status(Code::kFailedPrecondition, path + ": a directory, not a regular file", error);
    return status_from_errno(error, "opening " + path);
  }
  struct stat found;
  if (::fstat(fd.get(), &found) != 0) return status_from_errno(errno, "opening " + path);
  if (!S_ISREG(found.st_mode)) return Status(Code::kFailedPrecondition, path + ": not a regular file");
  File file(std::move(fd), path);
  if (options.caching == Caching::kDirect) file.start_direct();
  return file;
}

Result<File> File::open_unnamed(const Directory& directory, Caching caching) {
  Descriptor fd(::openat(directory.fd(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.get() < 0) {
    const int error = errno;
    const std::string doing = fmt::format("making a file without a name in {}", directory.path());
    // Where a file system, or an old kernel, has no such thing.
    if (error != EOPNOTSUPP && error != EISDIR && error != ENOENT) return status_from_errno(error, doing);
    const std::string name = fmt::format(".sluice-unnamed-{:016x}", random_u64());
    SLUICE_ASSIGN_OR_RETURN(File file,
                            open(directory, name, {.creation = Creation::kExclusive, .caching = caching}));
    SLUICE_RETURN_IF_ERROR(directory.remove(name));
    return file;
  }
  File file(std::move(fd), directory.path_of("(no name)"));
  if (caching == Caching::kDirect) file.start_direct();
  return file;
}

void File::start_direct() {
  // Set after opening: open() with O_CREAT | O_DIRECT leaves an empty file behind where O_DIRECT is refused.
  const int flags = ::fcntl(fd(), F_GETFL);
  if (flags < 0 || ::fcntl(fd(), F_SETFL, flags | O_DIRECT) != 0) {
    return fall_back(fmt::format("O_DIRECT refused at open: {}", std::generic_category().message(errno)));
  }
  direct_ = true;
  grid_ = {kGrids[0], kGrids[0]};
  struct statx told;
  if (::statx(fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &told) == 0 && (told.stx_mask & STATX_DIOALIGN) != 0) {
    if (told.stx_dio_offset_align == 0)
      return fall_back("the file system offers no O_DIRECT for this file (statx)");
    grid_ = {told.stx_dio_mem_align, told.stx_dio_offset_align};
  }
  probe_direct(Probe::kRead);
}

void File::probe_direct(Probe probe) {
  const Result<std::uint64_t> size_bytes = size();
  if (!direct_ || !size_bytes.ok() || *size_bytes == 0) return;  // a read of nothing proves nothing
  const Bounce memory = zeros(kGrids[2]);
  if (memory == nullptr) return;
  const auto refuses = [&](std::uint32_t bytes) {
    const ssize_t moved = probe == Probe::kRead ? ::pread(fd(), memory.get(), bytes, 0)
                                                : ::pwrite(fd(), memory.get(), bytes, 0);
    return moved < 0 && errno == EINVAL;  // any other fault is for the transfer that meets it
  };
  if (!refuses(grid_.offset_bytes)) return;
  for (const std::uint32_t bytes : kGrids) {
    if (bytes <= grid_.offset_bytes || (probe == Probe::kWriteZeros && bytes > *size_bytes) || refuses(bytes))
      continue;
    grid_ = {std::max(grid_.memory_bytes, bytes), bytes};
    return;
  }
  fall_back(fmt::format("O_DIRECT refused at the first {}", probe == Probe::kRead ? "read" : "write"));
}

void File::fall_back(std::string reason) {
  if (direct_) ::fcntl(fd(), F_SETFL, ::fcntl(fd(), F_GETFL) & ~O_DIRECT);
  direct_ = false;
  grid_ = {};
  // Transfers say all that is to be read; what the kernel reads ahead of them would stay behind in the cache.
  ::posix_fadvise(fd(), 0, 0, POSIX_FADV_RANDOM);
  fallback_reason_ = std::move(reason) + "; using the page cache";
}

Status File::preallocate(std::uint64_t bytes) {
  struct stat before;
  if (::fstat(fd(), &before) != 0) return status_from_errno(errno, "preallocating " + path_);
  const auto size_bytes = static_cast<std::uint64_t>(before.st_size);
  if (bytes == 0) return Status();

  // Asked first, so that a file too large does not take the last byte of the drive for a moment.
  struct statvfs drive;
  if (::fstatvfs(fd(), &drive) != 0) return status_from_errno(errno, "preallocating " + path_);
  const std::uint64_t available_bytes = std::uint64_t{drive.f_bavail} * drive.f_frsize;
  const std::uint64_t held_bytes = static_cast<std::uint64_t>(before.st_blocks) * 512;
  if (bytes > held_bytes && bytes - held_bytes > available_bytes) {
    return no_space(bytes - held_bytes, available_bytes, ENOSPC);
  }

  const Status status = reserve(size_bytes, bytes);
  if (!status.ok()) {
    // Gives back what was reserved. The first failure is the one to report.
    if (::ftruncate(fd(), before.st_size) != 0)
      return status.with_context("and the file could not be cut back");
    return status.code() == Code::kNoSpace ? no_space(bytes - std::min(bytes, held_bytes), available_bytes,
                                                      static_cast<int>(status.native()))
                                           : status;
  }
  if (size_bytes == 0) probe_direct(Probe::kWriteZeros);
  return Status();
}

Status File::reserve(std::uint64_t size_bytes, std::uint64_t bytes) {
  int error = 0;
  do {
    error = ::fallocate(fd(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) return Status();
  if (error != EOPNOTSUPP && error != ENOSYS) return status_from_errno(error, "preallocating " + path_);

  // No reservation on this file system: written zeros take their room now, a sparse file would fail later.
  const Bounce memory = zeros(kBounceBytes);
  if (memory == nullptr) return status_from_errno(ENOMEM, "preallocating " + path_);
  if (direct_ && size_bytes == 0 && ::ftruncate(fd(), kGrids[2]) == 0) probe_direct(Probe::kWriteZeros);
  for (std::uint64_t at = size_bytes; at < bytes;) {
    const std::size_t part = std::min<std::uint64_t>(kBounceBytes, bytes - at);
    SLUICE_RETURN_IF_ERROR(write_exact(at, {memory.get(), part}));
    at += part;
  }
  // A direct file has grown to its grid.
  if (size_bytes < bytes && ::ftruncate(fd(), static_cast<off_t>(bytes)) != 0) {
    return status_from_errno(errno, "preallocating " + path_);
  }
  return Status();
}

Status File::no_space(std::uint64_t needed_bytes, std::uint64_t available_bytes, int error) const {
  return Status(Code::kNoSpace,
                fmt::format("preallocating {}: needs {} bytes more, {} are available", path_, needed_bytes,
                            available_bytes),
                error);
}

Result<std::uint64_t> File::size() const {
  struct stat found;
  if (::fstat(fd(), &found) != 0) return status_from_errno(errno, "size of " + path_);
  return static_cast<std::uint64_t>(found.st_size);
}

Status File::failure(int error, std::string_view doing) const {
  const Status status = status_from_errno(error, doing);
  if (error != EINVAL || !direct_) return status;
  return Status(
      status.code(),
      fmt::format("{}: direct I/O on a grid of {} bytes ({} in memory) is refused here, though it was "
                  "accepted at first: use a directory on a file system that takes O_DIRECT (ext4, "
                  "XFS), or one without it, which is known at open",
                  status.message(), grid_.offset_bytes, grid_.memory_bytes),
      error);
}

Status File::flush() const {
  while (::fdatasync(fd()) != 0) {
    if (errno != EINTR) return status_from_errno(errno, "flush of " + path_);
  }
  return Status();
}

Status File::read_exact(std::uint64_t offset, std::span<std::byte> target) const {
  const Extent asked{offset, target.size()};
  if (on_grid(grid_, asked, target.data())) {
    const Result<std::size_t> moved = read_all(*this, asked, target.data());
    if (!moved.ok()) return moved.status();
    return *moved == asked.bytes ? Status() : truncated(*this, asked);
  }
  const Bounce bounce = zeros(kBounceBytes + grid_.offset_bytes);
  if (bounce == nullptr) return status_from_errno(ENOMEM, "reading " + path_);
  for (std::size_t done = 0; done < target.size();) {
    const Extent wanted{offset + done, std::min(kBounceBytes - grid_.offset_bytes, target.size() - done)};
    const Extent wide = widen(wanted, grid_.offset_bytes);
    const std::size_t skipped = wanted.offset - wide.offset;
    const Result<std::size_t> moved = read_all(*this, wide, bounce.get());
    if (!moved.ok()) return moved.status();
    if (*moved < skipped + wanted.bytes) return truncated(*this, asked);
    std::memcpy(target.data() + done, bounce.get() + skipped, wanted.bytes);
    done += wanted.bytes;
  }
  return Status();
}

Status File::write_exact(std::uint64_t offset, std::span<const std::byte> source) const {
  const Extent asked{offset, source.size()};
  if (on_grid(grid_, asked, source.data())) return write_all(*this, asked, source.data());
  const Bounce bounce = zeros(kBounceBytes + grid_.offset_bytes);
  if (bounce == nullptr) return status_from_errno(ENOMEM, "writing " + path_);
  for (std::size_t done = 0; done < source.size();) {
    const Extent part{offset + done, std::min(kBounceBytes - grid_.offset_bytes, source.size() - done)};
    const Extent wide = widen(part, grid_.offset_bytes);
    if (wide.bytes != part.bytes) {
      const Result<std::size_t> moved = read_all(*this, wide, bounce.get());
      if (!moved.ok()) return moved.status();
      std::memset(bounce.get() + *moved, 0, wide.bytes - *moved);  // beyond the end of the file
    }
    std::memcpy(bounce.get() + (part.offset - wide.offset), source.data() + done, part.bytes);
    SLUICE_RETURN_IF_ERROR(write_all(*this, wide, bounce.get()));
    done += part.bytes;
  }
  return Status();
}

}  // namespace sluice::io
