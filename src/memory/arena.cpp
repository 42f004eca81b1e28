#include "memory/arena.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "memory/memory_room.hpp"
#include "memory/resident_pages.hpp"
#include "memory/thread.hpp"
#include "memory/topology.hpp"

#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

namespace sluice::memory {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kHugePageBytes = 2 << 20;
constexpr std::uint64_t kPrefaultSliceBytes = 32 << 20;

constexpr std::uint64_t align_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

Status refusal(const ArenaOptions& options, const MemoryRoom& room) {
  return Status(Code::kResourceExhausted,
                fmt::format("{}: {} bytes needed, {} can be had ({})", options.purpose, options.bytes,
                            room.bytes(), room.to_string()));
}

// Maps `bytes` at a multiple of 2 MiB with a free page before and after, so that the kernel never merges two
// arenas into one mapping, of which it would report the pages together.
Result<std::byte*> map_aligned(std::uint64_t bytes, const std::string& purpose) {
  const std::uint64_t reserved_bytes = bytes + kHugePageBytes + kPageBytes;
  void* reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    return status_from_errno(errno, fmt::format("{}: mapping {} bytes", purpose, reserved_bytes));
  // Reserved at 0x1ff000: data at 0x200000, one page before it. Reserved at 0x200000: data at 0x400000, 2 MiB
  // before it and one page after its end. The gaps add up to 2 MiB + 4096 and neither is empty.
  const auto start = reinterpret_cast<std::uintptr_t>(reserved);
  const std::uintptr_t data = align_up(start + kPageBytes, kHugePageBytes);
  const std::uintptr_t end = start + reserved_bytes;
  munmap(reserved, data - start);
  munmap(reinterpret_cast<void*>(data + bytes), end - data - bytes);
  auto* target = reinterpret_cast<std::byte*>(data);
  if (mprotect(target, bytes, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    munmap(target, bytes);
    return status_from_errno(error, fmt::format("{}: mapping {} bytes for writing", purpose, bytes));
  }
  return target;
}

// Returns: 0 or an errno.
int prefault_slice(std::byte* data, std::uint64_t bytes) {
  while (madvise(data, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    for (std::uint64_t i = 0; i < bytes; i += kPageBytes)
      reinterpret_cast<volatile std::byte*>(data)[i] = std::byte{0};
    return 0;
  }
  return 0;
}

int prefault(std::byte* data, std::uint64_t bytes, std::uint32_t threads) {
  std::atomic<std::uint64_t> next_offset{0};
  std::atomic<int> failure{0};
  const auto work = [&] {
    while (failure == 0) {
      const std::uint64_t offset = next_offset.fetch_add(kPrefaultSliceBytes);
      if (offset >= bytes) return;
      if (const int error = prefault_slice(data + offset, std::min(kPrefaultSliceBytes, bytes - offset)))
        failure = error;
    }
  };
  const std::uint64_t slices = (bytes + kPrefaultSliceBytes - 1) / kPrefaultSliceBytes;
  std::vector<std::thread> others;
  for (std::uint64_t i = 1; i < std::min<std::uint64_t>(threads, slices); ++i) {
    Result<std::thread> thread = start_thread("sluice-prefault", work);
    if (!thread.ok()) break;  // those that run share the work
    others.push_back(std::move(thread).value());
  }
  work();
  for (std::thread& thread : others) thread.join();
  return failure;
}

std::string describe_backing(const std::byte* data, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto [resident_bytes, huge_bytes] = read_resident_pages(begin, begin + bytes);
  if (resident_bytes == 0) return "pages of unknown size";  // no /proc
  if (huge_bytes == 0) return "4 KiB pages";
  if (huge_bytes >= bytes) return "huge pages (transparent)";
  return fmt::format("huge pages (transparent) for {} of {} KiB, else 4 KiB pages", huge_bytes >> 10,
                     bytes >> 10);
}

}  // namespace

Result<Arena> Arena::create(const ArenaOptions& options) {
  if (options.prefault_threads < 1 || options.prefault_threads > 1024)
    return Status(Code::kInvalidArgument,
                  fmt::format("prefault_threads: {} is not in 1..1024", options.prefault_threads));
  Arena arena;
  if (options.bytes == 0) return arena;
  const MemoryRoom room = read_memory_room();
  if (options.bytes > std::min(room.bytes(), std::uint64_t{1} << 62)) return refusal(options, room);

  const std::uint64_t mapped_bytes = align_up(options.bytes, kPageBytes);
  const Result<std::byte*> data = map_aligned(mapped_bytes, options.purpose);
  if (!data.ok()) return data.status();
  arena.data_ = *data;
  arena.bytes_ = options.bytes;
  arena.owner_ = getpid();
  if (madvise(*data, mapped_bytes, MADV_DONTFORK) != 0)
    return status_from_errno(errno, options.purpose + ": keeping memory from forked children");
  // A kernel without transparent huge pages refuses the advice; backing() tells.
  madvise(*data, mapped_bytes, options.huge_pages == HugePages::kTry ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  if (options.policy != MemoryPolicy::kFirstTouch)
    arena.binding_ = bind_memory(*options.topology, {*data, mapped_bytes}, options.policy, options.nodes)
                         .with_context(options.purpose);
  if (const int error = prefault(*data, mapped_bytes, options.prefault_threads))
    return status_from_errno(error, fmt::format("{}: faulting in {} bytes", options.purpose, mapped_bytes));
  arena.backing_ = describe_backing(*data, mapped_bytes);
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      owner_(other.owner_),
      backing_(std::exchange(other.backing_, "none")),
      binding_(std::exchange(other.binding_, Status())) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    owner_ = other.owner_;
    backing_ = std::exchange(other.backing_, "none");
    binding_ = std::exchange(other.binding_, Status());
  }
  return *this;
}

Arena::~Arena() { unmap(); }

void Arena::unmap() {
  // In a forked child the addresses may belong to somebody else by now.
  if (data_ == nullptr || getpid() != owner_) return;
  munmap(data_, align_up(bytes_, kPageBytes));
}

}  // namespace sluice::memory
