#include "io/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

namespace sluice::io {
namespace {

Status refused(const std::string& path, std::string_view why, int error) {
  return Status(Code::kFailedPrecondition, fmt::format("{}: {}", path, why), error);
}

Status why_not_opened(const std::string& path, int error) {
  struct stat link;
  switch (error) {
    case ENOENT:
      if (::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
        return Status(Code::kNotFound, fmt::format("{}: a link to something that does not exist", path),
                      error);
      }
      return Status(Code::kNotFound, fmt::format("{}: no such directory", path), error);
    case ENOTDIR:
      return refused(path, "not a directory", error);
    case ELOOP:
      return refused(path, "a link, which is not followed", error);
    case EACCES:
      return refused(path, "this user may not open the directory", error);
    default:
      return status_from_errno(error, fmt::format("opening directory {}", path));
  }
}

Status check_name(const std::string& path, std::string_view name) {
  if (!name.empty() && name != "." && name != ".." && name.find('/') == name.npos) return Status();
  return Status(Code::kInvalidArgument, fmt::format("\"{}\" in {}: not the name of one file", name, path));
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Descriptor::release() { return std::exchange(fd_, -1); }

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Directory> Directory::open(const std::string& path, Access access) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return why_not_opened(path, errno);
  if (access == Access::kReadWrite && ::faccessat(fd.get(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
    const int error = errno;
    if (error == EROFS) return refused(path, "on a read-only file system", error);
    if (error == EACCES) return refused(path, "this user may not write to the directory", error);
    return status_from_errno(error, fmt::format("checking directory {}", path));
  }
  return Directory(std::move(fd), path);
}

Result<Directory> Directory::subdirectory(const std::string& name, Creation creation) const {
  SLUICE_RETURN_IF_ERROR(check_name(path_, name));
  if (creation != Creation::kNever && ::mkdirat(fd(), name.c_str(), 0700) != 0 &&
      (errno != EEXIST || creation == Creation::kExclusive)) {
    return status_from_errno(errno, fmt::format("making directory {}", path_of(name)));
  }
  Descriptor opened(::openat(fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened.get() < 0) return why_not_opened(path_of(name), errno);
  return Directory(std::move(opened), path_of(name));
}

Result<Directory> Directory::reopen() const {
  Descriptor opened(::openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return why_not_opened(path_, errno);
  return Directory(std::move(opened), path_);
}

Result<std::vector<std::string>> Directory::names() const {
  const auto failed = [&](int error) { return status_from_errno(error, fmt::format("listing {}", path_)); };
  Descriptor copy(::openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (copy.get() < 0) return failed(errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy.get()), ::closedir);
  if (stream == nullptr) return failed(errno);
  copy.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return failed(errno);
  std::sort(names.begin(), names.end());
  return names;
}

Status Directory::sync() const {
  while (::fsync(fd()) != 0) {
    if (errno != EINTR) return status_from_errno(errno, fmt::format("flushing directory {}", path_));
  }
  return Status();
}

Status Directory::remove(const std::string& name) const {
  SLUICE_RETURN_IF_ERROR(check_name(path_, name));
  if (::unlinkat(fd(), name.c_str(), 0) == 0) return Status();
  if (errno == EISDIR && ::unlinkat(fd(), name.c_str(), AT_REMOVEDIR) == 0) return Status();
  return status_from_errno(errno, fmt::format("removing {}", path_of(name)));
}

Status Directory::rename(const std::string& source, const std::string& target) const {
  SLUICE_RETURN_IF_ERROR(check_name(path_, source));
  SLUICE_RETURN_IF_ERROR(check_name(path_, target));
  if (::renameat(fd(), source.c_str(), fd(), target.c_str()) == 0) return Status();
  return status_from_errno(errno, fmt::format("renaming {} to {}", path_of(source), target));
}

Result<Space> Directory::space() const {
  struct statvfs space;
  if (::fstatvfs(fd(), &space) != 0)
    return status_from_errno(errno, fmt::format("asking for the space of {}", path_));
  return Space{.total_bytes = std::uint64_t{space.f_blocks} * space.f_frsize,
               .available_bytes = std::uint64_t{space.f_bavail} * space.f_frsize};
}

std::string Directory::path_of(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

}  // namespace sluice::io
