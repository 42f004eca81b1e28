#include "store/lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "io/random.hpp"
#include "store/names.hpp"

namespace sluice::store {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr auto kPause = std::chrono::milliseconds(5);
constexpr std::uint64_t kOwnerBytesMax = 4096;

constexpr std::size_t kBootIdBytesMax = 64;

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Field 22 of /proc/<process>/stat; the name in field 2 may hold spaces and brackets. Source: proc(5).
/// Returns: nothing where that does not tell or the process has ended.
std::optional<std::uint64_t> start_ticks_of(const std::string& process) {
  const std::string text = read_text("/proc/" + process + "/stat");
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  char state = 0;
  fields >> state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  std::uint64_t ticks = 0;
  fields >> ticks;
  const bool ended = state == 'Z' || state == 'X';
  if (!fields || ended) return std::nullopt;
  return ticks;
}

std::uint64_t start_of_this_process() {
  static const std::uint64_t instead = io::random_u64() | Owner::kNoTicks;
  return start_ticks_of("self").value_or(instead);
}

/// Of this machine's last start; "" where /proc does not tell.
std::string boot_id_here() {
  std::string id;
  std::istringstream(read_text("/proc/sys/kernel/random/boot_id")) >> id;
  return id.size() <= kBootIdBytesMax ? id : "";
}

bool is_of_another_boot(const Owner& owner) {
  const std::string here = boot_id_here();
  return !owner.boot_id.empty() && !here.empty() && owner.boot_id != here;
}

/// The owner that is written down; nothing if there is none or it cannot be understood.
Result<std::optional<Owner>> read_owner(const io::Directory& directory) {
  auto file = io::File::open(directory, kOwnerName,
                             {.access = io::Access::kReadOnly, .caching = io::Caching::kBuffered});
  if (file.status().code() == Code::kNotFound) return std::optional<Owner>();
  if (!file.ok()) return file.status();
  const auto bytes = file->size();
  if (!bytes.ok()) return bytes.status();
  std::string text(std::min(*bytes, kOwnerBytesMax), '\0');
  SLUICE_RETURN_IF_ERROR(file->read_exact(0, std::as_writable_bytes(std::span(text))));
  return parse_owner(text);
}

std::string describe(const std::optional<Owner>& owner, std::int64_t lock_pid) {
  if (owner && (lock_pid <= 0 || owner->pid == lock_pid)) {
    return fmt::format("process {} (engine {:016x})", owner->pid, owner->nonce);
  }
  return fmt::format("process {}", lock_pid);
}

struct flock whole_file(short type) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

}  // namespace

Owner Owner::make() {
  return {.pid = ::getpid(),
          .start_ticks = start_of_this_process(),
          .nonce = io::random_u64(),
          .boot_id = boot_id_here()};
}

bool Owner::is_this_process() const {
  return start_ticks != 0 && pid == ::getpid() && start_ticks == start_of_this_process() &&
         !is_of_another_boot(*this);
}

bool Owner::lives() const {
  if (pid <= 0 || is_of_another_boot(*this)) return false;
  if (pid == ::getpid()) return is_this_process();
  if (start_ticks > 0 && start_ticks < kNoTicks) {
    const auto ticks = start_ticks_of(std::to_string(pid));
    if (ticks) return *ticks == start_ticks;
  }
  return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
}

std::string encode(const Owner& owner) {
  const std::string text =
      fmt::format("pid {}\nstart {}\nnonce {:016x}\n", owner.pid, owner.start_ticks, owner.nonce);
  return owner.boot_id.empty() ? text : fmt::format("{}boot {}\n", text, owner.boot_id);
}

std::optional<Owner> parse_owner(std::string_view text) {
  Owner owner;
  std::istringstream fields{std::string(text)};
  std::string pid, start, nonce, boot;
  fields >> pid >> owner.pid >> start >> owner.start_ticks >> nonce >> std::hex >> owner.nonce;
  if (!fields || pid != "pid" || start != "start" || nonce != "nonce") return std::nullopt;
  if (!(fields >> boot)) return owner;
  fields >> owner.boot_id;
  if (!fields || boot != "boot" || owner.boot_id.size() > kBootIdBytesMax) return std::nullopt;
  return owner;
}

Result<std::optional<Owner>> live_owner(const io::Directory& directory) {
  SLUICE_ASSIGN_OR_RETURN(std::optional<Owner> owner, read_owner(directory));
  if (owner && owner->is_this_process()) return owner;
  const auto file = io::File::open(directory, kLockName,
                                   {.access = io::Access::kReadOnly, .caching = io::Caching::kBuffered});
  if (file.status().code() == Code::kNotFound) return std::optional<Owner>();
  if (!file.ok()) return file.status();
  struct flock range = whole_file(F_WRLCK);
  if (::fcntl(file->fd(), F_GETLK, &range) != 0)
    return status_from_errno(errno, fmt::format("asking who locks {}", file->path()));
  if (range.l_type == F_UNLCK) return std::optional<Owner>();
  if (owner && owner->pid == range.l_pid) return owner;
  return std::optional<Owner>(Owner{.pid = range.l_pid});
}

Result<NamesGuard> NamesGuard::acquire(const io::Directory& directory) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (::flock(directory.fd(), LOCK_EX | LOCK_NB) != 0) {
    switch (errno) {
      case EINTR:
        break;
      case EWOULDBLOCK:
        if (std::chrono::steady_clock::now() > deadline) {
          return Status(Code::kFailedPrecondition,
                        fmt::format("{}: another engine has been opening or closing a store here for {} s",
                                    directory.path(), kPatience.count()),
                        EWOULDBLOCK);
        }
        std::this_thread::sleep_for(kPause);
        break;
      case EBADF:
      case EINVAL:
      case ENOLCK:
      case ENOTSUP:
        return NamesGuard(-1);
      default:
        return status_from_errno(errno, fmt::format("locking directory {}", directory.path()));
    }
  }
  return NamesGuard(directory.fd());
}

NamesGuard::NamesGuard(NamesGuard&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

NamesGuard::~NamesGuard() {
  if (fd_ >= 0) ::flock(fd_, LOCK_UN);
}

Result<Lock> Lock::acquire(const io::Directory& directory, io::Creation creation) {
  const auto owner = read_owner(directory);
  if (!owner.ok()) return owner.status();
  if (*owner && (*owner)->is_this_process()) {
    return Status(Code::kFailedPrecondition, fmt::format("{}: in use by another engine of this process, {}",
                                                         directory.path(), describe(*owner, 0)));
  }
  SLUICE_ASSIGN_OR_RETURN(io::Directory reopened, directory.reopen());
  auto file =
      io::File::open(directory, kLockName,
                     {.creation = creation == io::Creation::kIfMissing ? io::Creation::kNever : creation,
                      .caching = io::Caching::kBuffered});
  if (file.status().code() == Code::kNotFound && creation == io::Creation::kIfMissing) {
    if (*owner && (*owner)->lives()) {
      return Status(Code::kFailedPrecondition, fmt::format("{}: in use by {}, whose lock was removed",
                                                           directory.path(), describe(*owner, 0)));
    }
    file = io::File::open(directory, kLockName, {.creation = creation, .caching = io::Caching::kBuffered});
  }
  if (!file.ok()) return file.status();
  struct flock range = whole_file(F_WRLCK);
  while (::fcntl(file->fd(), F_SETLK, &range) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error != EAGAIN && error != EACCES)
      return status_from_errno(error, fmt::format("locking {}", file->path()));
    range = whole_file(F_WRLCK);
    if (::fcntl(file->fd(), F_GETLK, &range) != 0) range.l_pid = 0;
    return Status(Code::kFailedPrecondition,
                  fmt::format("{}: in use by {}", directory.path(), describe(*owner, range.l_pid)), error);
  }
  return Lock(std::move(reopened), std::move(*file));
}

Lock::Lock(io::Directory directory, io::File file)
    : directory_(std::move(directory)), file_(std::move(file)) {}

Lock::Lock(Lock&& other) noexcept
    : directory_(std::move(other.directory_)),
      file_(std::exchange(other.file_, std::nullopt)),
      owner_(std::exchange(other.owner_, std::nullopt)) {}

Lock& Lock::operator=(Lock&& other) noexcept {
  if (this != &other) {
    release();
    directory_ = std::move(other.directory_);
    file_ = std::exchange(other.file_, std::nullopt);
    owner_ = std::exchange(other.owner_, std::nullopt);
  }
  return *this;
}

Lock::~Lock() { release(); }

void Lock::release() {
  // In this order: without the signature another engine of this process would lock the file, and this close
  // would drop its lock. Who has signed meanwhile has the lock.
  file_.reset();
  const std::optional<Owner> mine = std::exchange(owner_, std::nullopt);
  if (!mine || !mine->is_this_process()) return;
  const auto found = read_owner(directory_);
  if (found.ok() && *found == mine) (void)directory_.remove(kOwnerName);
}

Status Lock::sign(const Owner& owner) {
  // A draft that a dead one left may be longer than the text that goes into it.
  const Status removed = directory_.remove(kOwnerDraftName);
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  const std::string text = encode(owner);
  {
    auto file = io::File::open(directory_, kOwnerDraftName,
                               {.creation = io::Creation::kExclusive, .caching = io::Caching::kBuffered});
    if (!file.ok()) return file.status();
    SLUICE_RETURN_IF_ERROR(file->write_exact(0, std::as_bytes(std::span(text))));
  }
  SLUICE_RETURN_IF_ERROR(directory_.rename(kOwnerDraftName, kOwnerName));
  owner_ = owner;
  return {};
}

}  // namespace sluice::store
