#include "support/sim_backend.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace sluice::sim {

SimBackend::SimBackend(SimWorld& world, const SimOptions& options)
    : world_(world), options_(options), faults_(world.below(~std::uint64_t{0})) {}

SimBackend::~SimBackend() {
  while (!running_.empty()) world_.step();
  for (auto& [key, drive] : drives_) {
    write_out(drive);
    ::close(drive.fd);
  }
}

io::Request* SimBackend::submit(io::Request* first) {
  while (first != nullptr && held_ < options_.depth) {
    io::Request* request = first;
    first = first->next;
    ++held_;
    running_.push_back(request);
    const auto spread_ns = static_cast<std::uint64_t>(options_.max_latency_ns - options_.min_latency_ns) + 1;
    const std::int64_t delay_ns =
        options_.delay_ns ? options_.delay_ns(*request, world_.now_ns())
                          : options_.min_latency_ns + static_cast<std::int64_t>(world_.below(spread_ns));
    world_.post([this, request] { perform(*request); }, delay_ns);
  }
  return first;
}

io::Request* SimBackend::reap() {
  held_ -= done_.count;
  return done_.take();
}

void SimBackend::wait(std::int64_t deadline_ns, std::uint32_t events) {
  while (done_.count < awaited(events, held_) && !woken_) {
    if (world_.idle() || world_.next_due_ns() > deadline_ns) {
      if (deadline_ns != io::kNoDeadline) world_.advance_to(deadline_ns);
      break;
    }
    world_.step();
  }
  woken_ = false;
}

void SimBackend::perform(io::Request& request) {
  const auto at = std::find(running_.begin(), running_.end(), &request);
  running_.erase(at);
  request.result = run(request);
  if (request.result > 0) bytes_moved_ += static_cast<std::uint64_t>(request.result);
  done_.push(request);
}

std::int64_t SimBackend::run(io::Request& request) {
  if (crashed_) return -EIO;
  Drive* drive = drive_of(request.fd);
  if (drive == nullptr) return -EBADF;
  std::uint64_t bytes = request.bytes;
  if (const int fault = faults_.next(request); fault == Fault::kShort) {
    bytes = faults_.shortened(request);
  } else if (fault == Fault::kNothing) {
    return 0;
  } else if (fault != 0) {
    if (fault == EIO && request.op == io::Op::kWrite) write_torn(*drive, request);
    return -fault;
  }
  if (request.op == io::Op::kFlush) return write_out(*drive);
  if (request.op == io::Op::kDropCache) return 0;
  return request.op == io::Op::kRead ? read(*drive, request, bytes) : write(*drive, request, bytes);
}

SimBackend::Drive* SimBackend::drive_of(int fd) {
  struct stat found;
  if (::fstat(fd, &found) != 0) return nullptr;
  Drive& drive = drives_[{found.st_dev, found.st_ino}];
  // Unflushed bytes outlive the caller's descriptor. O_DIRECT is shared with the duplicate, so it is opened
  // anew.
  if (drive.fd < 0) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const bool writable = (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    drive.fd = ::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  }
  return &drive;
}

std::int64_t SimBackend::read(Drive& drive, const io::Request& request, std::uint64_t bytes) {
  auto* target = static_cast<std::byte*>(request.buffer);
  const ssize_t moved = ::pread(drive.fd, target, bytes, static_cast<off_t>(request.offset));
  if (moved < 0) return -errno;
  const std::uint64_t end = request.offset + static_cast<std::uint64_t>(moved);
  for (auto it = drive.unflushed.lower_bound(request.offset / kSectorBytes); it != drive.unflushed.end();
       ++it) {
    const std::uint64_t sector_begin = it->first * kSectorBytes;
    if (sector_begin >= end) break;
    const std::uint64_t from = std::max(sector_begin, request.offset);
    const std::uint64_t to = std::min(sector_begin + kSectorBytes, end);
    std::memcpy(target + (from - request.offset), it->second.data() + (from - sector_begin), to - from);
  }
  return moved;
}

std::int64_t SimBackend::write(Drive& drive, const io::Request& request, std::uint64_t bytes) {
  const auto* source = static_cast<const std::byte*>(request.buffer);
  const std::uint64_t end = request.offset + bytes;
  struct stat found;
  if (::fstat(drive.fd, &found) != 0) return -errno;
  // The size grows at once: file systems keep it in their journal.
  if (end > static_cast<std::uint64_t>(found.st_size) && ::ftruncate(drive.fd, static_cast<off_t>(end)) != 0)
    return -errno;
  for (std::uint64_t from = request.offset; from < end;) {
    const std::uint64_t number = from / kSectorBytes;
    const std::uint64_t to = std::min((number + 1) * kSectorBytes, end);
    const auto [it, fresh] = drive.unflushed.try_emplace(number);
    if (fresh && to - from < kSectorBytes) load(drive, number, it->second);
    std::memcpy(it->second.data() + from % kSectorBytes, source + (from - request.offset), to - from);
    from = to;
  }
  return static_cast<std::int64_t>(bytes);
}

void SimBackend::write_torn(Drive& drive, const io::Request& request) {
  for (std::uint64_t at = 0; at < request.bytes;) {
    const std::uint64_t part =
        std::min(kSectorBytes - (request.offset + at) % kSectorBytes, request.bytes - at);
    io::Request sector = request;
    sector.offset += at;
    sector.buffer = static_cast<std::byte*>(request.buffer) + at;
    if (world_.chance(0.5)) write(drive, sector, part);
    at += part;
  }
}

void SimBackend::load(const Drive& drive, std::uint64_t sector, Sector& target) const {
  target.fill(std::byte{0});  // stays where the file ends
  if (::pread(drive.fd, target.data(), kSectorBytes, static_cast<off_t>(sector * kSectorBytes)) < 0)
    std::abort();
}

std::int64_t SimBackend::write_out(Drive& drive) {
  struct stat found;
  if (::fstat(drive.fd, &found) != 0) return -errno;
  const auto size_bytes = static_cast<std::uint64_t>(found.st_size);
  for (const auto& [number, sector] : drive.unflushed) {
    const std::uint64_t begin = number * kSectorBytes;
    if (begin >= size_bytes) break;  // cut off meanwhile
    const std::uint64_t bytes = std::min(kSectorBytes, size_bytes - begin);
    if (::pwrite(drive.fd, sector.data(), bytes, static_cast<off_t>(begin)) < 0) return -errno;
  }
  drive.unflushed.clear();
  return 0;
}

void SimBackend::crash(Crash crash) {
  for (io::Request* request : running_) {
    Drive* drive = drive_of(request->fd);
    if (drive != nullptr && request->op == io::Op::kWrite) write_torn(*drive, *request);
  }
  for (auto& [key, drive] : drives_) {
    if (crash == Crash::kPowerLost)
      std::erase_if(drive.unflushed, [this](const auto&) { return world_.chance(0.5); });
    write_out(drive);
    drive.unflushed.clear();
  }
  crashed_ = true;
}

std::size_t SimBackend::unflushed_sectors() const {
  std::size_t count = 0;
  for (const auto& [key, drive] : drives_) count += drive.unflushed.size();
  return count;
}

}  // namespace sluice::sim
