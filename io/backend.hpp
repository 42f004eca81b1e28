#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.hpp"

namespace sluice::io {

enum class Op : std::uint8_t {
  kRead,
  kWrite,
  kFlush,      ///< fdatasync: what completed before the flush was submitted is durable when it succeeds
  kDropCache,  ///< posix_fadvise(POSIX_FADV_DONTNEED) of a range: clean pages leave the page cache, of dirty
               ///< ones the writing begins; moves no bytes, its result is 0
};

/// "read", "write", "flush", "drop_cache".
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
  std::uint32_t bytes = 0;  ///< at most the backend's max_request_bytes; 0 for a flush
  std::uint64_t offset = 0;
  void* buffer = nullptr;   ///< only read from by a write
  std::int64_t result = 0;  ///< bytes moved, perhaps fewer than asked, or a negative errno
  Request* next = nullptr;  ///< links lists of requests; the backend's while it holds the request
  void* owner = nullptr;    ///< the caller's
};

/// What a backend uses of what the kernel may offer, for reports.
struct BackendUse {
  std::string ring;  ///< "single_issuer defer_taskrun coop_taskrun cqsize", "plain"; empty: no ring
  bool registered_memory = false;
  bool registered_files = false;
  std::vector<std::string> notes;  ///< what was tried and is not in use, each with the errno and the remedy
};

struct BackendLimits {
  std::uint32_t depth = 0;  ///< requests held at once, finished ones that were not reaped included
  std::uint32_t max_request_bytes = kMaxRequestBytes;
};

/// The seam to the kernel's block I/O: the ring, threads that call pread and pwrite, or a simulation.
/// Requests may run and finish in any order, overlapping ones too.
/// Threads: everything but wake() belongs to one thread, the one that made the backend until another adopts
/// it; the destructor too, unless nothing is in the kernel.
/// Lifetime: the destructor waits for every request that is in the kernel. That thread outlives them.
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

  /// Takes requests from the front of the list `first`, in its order, until it is full. They start at the
  /// latest with the next reap() or wait(), so that one call of the kernel may serve several purposes.
  /// Returns: the rest of the list, null when all were taken; try those again after a reap().
  /// Errors: arrive as results; submission itself does not fail. EPERM where the backend is bound to another
  /// thread.
  /// Blocks: never on a drive.
  virtual Request* submit(Request* first) = 0;

  /// Returns: a list of requests that have finished, null when there are none.
  /// Blocks: never.
  virtual Request* reap() = 0;

  /// Sleeps until as many requests have finished that were not reaped: `events`, or all that are held where these
  /// are fewer. A wake() counts as one of them, or ends it; where none is held nothing else does. At most until the
  /// deadline; may return early. A wake() that comes before wait() is kept for the next one.
  /// Cost: one sleep, whatever the number of events, where the kernel can count them.
  virtual void wait(std::int64_t deadline_ns, std::uint32_t events) = 0;

  /// Ends the wait() for one event in progress, or the next one; of a wait() for several it may only be one.
  /// Threads: any.
  virtual void wake() = 0;

  /// Gives the backend to the calling thread. What was registered stays so; what the kernel does not register
  /// again goes on unregistered, with a note in in_use().
  /// Requires: no request is held, and the thread that it belonged to does not use it meanwhile.
  /// Errors: as when the backend was made; every later request then fails with the same errno.
  virtual Status adopt();

  /// Tells the kernel to keep these pages pinned, so that requests inside them cost less. At most once.
  /// Requires: no request is held.
  /// Errors: kUnimplemented where the backend has no such thing, kResourceExhausted with the remedy under a
  /// lock limit; requests then simply go on unregistered, and in_use() has the note.
  /// Lifetime: the memory stays mapped until unregister() or the destructor.
  virtual Status register_memory(std::span<const std::span<std::byte>> regions);

  /// Tells the kernel to keep these files at hand, so that requests on them cost less. At most once.
  /// Requires: no request is held. Errors: as register_memory().
  /// Lifetime: they stay open until unregister() or the last request: the number of one that is closed may
  /// come to mean another file, and its requests would still reach the old one.
  virtual Status register_files(std::span<const int> fds);

  /// Lets go of all that was registered: after it the memory may be unmapped and the files closed, and
  /// nothing in the kernel keeps their pages or blocks.
  /// Requires: no request is held.
  virtual void unregister();

  virtual BackendUse in_use() const;

 protected:
  /// How many events end a wait() for `events` while `held` requests are: at least one, which a wake() is too.
  static std::uint32_t awaited(std::uint32_t events, std::uint32_t held) {
    return std::clamp(events, 1u, std::max(held, 1u));
  }
};

}  // namespace sluice::io
