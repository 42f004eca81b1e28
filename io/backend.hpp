#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "sluice/status.hpp"

namespace sluice::io {

enum class Op : std::uint8_t {
  kRead,
  kWrite,
  kFlush,  ///< fdatasync: what completed before the flush was submitted is durable when it succeeds
};

/// "read", "write", "flush".
std::string_view op_name(Op op);

/// The most bytes one request may carry: Linux moves at most 0x7ffff000 in one call.
/// Source: read(2), "NOTES".
inline constexpr std::uint32_t kMaxRequestBytes = 0x7ffff000;

/// A deadline that never comes.
inline constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

/// CLOCK_MONOTONIC.
std::int64_t steady_now_ns();

/// One operation of the kernel.
/// Lifetime: owned by the caller; it and its buffer stay untouched from submit() until reap() returns it.
struct Request {
  Op op = Op::kRead;
  int fd = -1;
  std::uint32_t bytes = 0;  ///< at most kMaxRequestBytes; 0 for a flush
  std::uint64_t offset = 0;
  void* buffer = nullptr;   ///< only read from by a write
  std::int64_t result = 0;  ///< bytes moved, perhaps fewer than asked, or a negative errno
  Request* next = nullptr;  ///< links lists of requests; the backend's while it holds the request
  void* owner = nullptr;    ///< the caller's
};

struct BackendLimits {
  std::uint32_t depth = 0;  ///< requests held at once, finished ones that were not reaped included
};

/// The seam to the kernel's block I/O: the ring, threads that call pread and pwrite, or a simulation.
/// Requests may run and finish in any order, overlapping ones too.
/// Threads: everything but wake() belongs to one thread at a time, not always the one that made the backend.
/// Lifetime: the destructor waits for every request that is in the kernel.
class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// "uring", "threads", "simulation".
  virtual std::string_view name() const = 0;
  virtual BackendLimits limits() const = 0;

  /// The clock of wait()'s deadline.
  virtual std::int64_t now_ns() const { return steady_now_ns(); }

  /// Takes requests from the front of the list `first`, in its order, until it is full.
  /// Returns: the rest of the list, null when all were taken; try those again after a reap().
  /// Errors: arrive as results; submission itself does not fail.
  /// Blocks: never on a drive.
  virtual Request* submit(Request* first) = 0;

  /// Returns: a list of all requests that have finished, null when there are none.
  /// Blocks: never.
  virtual Request* reap() = 0;

  /// Sleeps until a request has finished and was not reaped, wake() was called or the deadline has passed.
  /// May return early. A wake() that comes before wait() is kept: the next wait() returns at once.
  virtual void wait(std::int64_t deadline_ns) = 0;

  /// Ends the wait() in progress, or the next one.
  /// Threads: any.
  virtual void wake() = 0;

  /// Tells the kernel to keep these pages pinned, so that requests inside them cost less. At most once,
  /// before any submit(). Errors: kUnimplemented where the backend has no such thing, kResourceExhausted
  /// under a lock limit; requests then simply go on unregistered. Lifetime: the memory stays mapped as long
  /// as the backend lives.
  virtual Status register_memory(std::span<const std::span<std::byte>> regions);
};

}  // namespace sluice::io
