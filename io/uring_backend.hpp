#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "io/backend.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

struct UringOptions {
  std::uint32_t depth = 64;
  /// Memory is registered in pieces of at most so many bytes; a request across two of them goes unregistered.
  /// Source: io_uring_register(2), IORING_REGISTER_BUFFERS: the kernel takes at most 1 GiB in one.
  std::size_t registered_piece_bytes = std::size_t{1} << 30;
  /// What to ask the kernel for, of ring_features(); fewer make the ring of an older Linux.
  unsigned features = ~0u;
};

/// A Backend over one io_uring, probed with a write and a read of a descriptor of its own. Where the kernel
/// offers it the ring is bound to its thread (SINGLE_ISSUER) and works completions off when that thread asks
/// (DEFER_TASKRUN), so requests of other threads fail with EPERM, and adopt() opens the ring anew.
/// Errors: kUnavailable where the kernel or its settings forbid the ring or its operations,
/// kResourceExhausted under a lock or memory limit; the message names the errno and the remedy.
Result<std::unique_ptr<Backend>> open_uring_backend(const UringOptions& options);

}  // namespace sluice::io
