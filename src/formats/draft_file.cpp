#include "formats/draft_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::formats {
namespace {

/// Each lost to another writer that published or gave up in the meantime.
constexpr int kOpenTriesMax = 100;

/// Whether `name` in the directory is the open file.
bool is_named(const io::Directory& directory, const std::string& name, int fd) {
  struct stat open_file, named;
  return ::fstat(fd, &open_file) == 0 &&
         ::fstatat(directory.fd(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

}  // namespace

DraftFile::DraftFile(Place place) : place_(std::move(place)), process_(::getpid()) {}

DraftFile::~DraftFile() {
  if (place_.directory == nullptr || process_ != ::getpid() || !file_) return;
  (void)place_.directory->remove(draft_name());  // nobody is left to be told
}

std::string DraftFile::draft_name() const { return place_.name + ".sluice-draft"; }

Result<DraftFile> DraftFile::create(Place place) {
  DraftFile draft(std::move(place));
  if (draft.place_.taken()) return draft.taken();
  SLUICE_RETURN_IF_ERROR(draft.open());
  draft.buffer_ = std::make_unique<std::byte[]>(kBufferBytes);
  return draft;
}

Status DraftFile::open() {
  for (int tries = 0; tries < kOpenTriesMax; ++tries) {
    SLUICE_ASSIGN_OR_RETURN(io::File file, io::File::open(*place_.directory, draft_name(),
                                                          {.creation = io::Creation::kIfMissing,
                                                           .caching = io::Caching::kBuffered}));
    // Where the file system has no locks (ENOLCK, ENOTSUP …) two writers of one name are not told apart.
    if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return Status(Code::kFailedPrecondition,
                    fmt::format("{}: another writer is at work on it, {} is locked", path(), file.path()),
                    EWOULDBLOCK);
    }
    if (!is_named(*place_.directory, draft_name(), file.fd())) continue;
    if (::ftruncate(file.fd(), 0) != 0) return status_from_errno(errno, "emptying " + file.path());
    file_ = std::move(file);
    return Status();
  }
  return Status(Code::kFailedPrecondition, path() + ": other writers keep making it");
}

Status DraftFile::taken() const {
  return Status(Code::kAlreadyExists, path() + ": exists and is not replaced", EEXIST);
}

Status DraftFile::reserve(std::uint64_t bytes) { return file_->preallocate(bytes); }

Status DraftFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (buffered_bytes_ == 0 && bytes.size() >= kBufferBytes) {
      SLUICE_RETURN_IF_ERROR(file_->write_exact(written_bytes_, bytes));
      written_bytes_ += bytes.size();
      return Status();
    }
    const std::size_t part = std::min(bytes.size(), kBufferBytes - buffered_bytes_);
    std::memcpy(buffer_.get() + buffered_bytes_, bytes.data(), part);
    buffered_bytes_ += part;
    bytes = bytes.subspan(part);
    if (buffered_bytes_ == kBufferBytes) SLUICE_RETURN_IF_ERROR(flush_buffer());
  }
  return Status();
}

Status DraftFile::flush_buffer() {
  SLUICE_RETURN_IF_ERROR(file_->write_exact(written_bytes_, {buffer_.get(), buffered_bytes_}));
  written_bytes_ += std::exchange(buffered_bytes_, 0);
  return Status();
}

Status DraftFile::publish() {
  SLUICE_RETURN_IF_ERROR(flush_buffer());
  SLUICE_RETURN_IF_ERROR(file_->flush());
  SLUICE_RETURN_IF_ERROR(rename());
  const Place place{std::exchange(place_.directory, nullptr), place_.name};
  file_.reset();
  const Status synced = place.directory->sync();
  if (synced.ok()) return synced;
  (void)place.directory->remove(place.name);  // the first failure is the one to report
  return synced.with_context(place.path());
}

Status DraftFile::rename() {
  const int fd = place_.directory->fd();
  if (::renameat2(fd, draft_name().c_str(), fd, place_.name.c_str(), RENAME_NOREPLACE) == 0) return Status();
  if (errno == EEXIST) return taken();
  if (errno != EINVAL && errno != ENOSYS) {
    return status_from_errno(errno, fmt::format("renaming {} to {}", file_->path(), place_.name));
  }
  // A file system that cannot do both in one.
  if (place_.taken()) return taken();
  return place_.directory->rename(draft_name(), place_.name);
}

}  // namespace sluice::formats
