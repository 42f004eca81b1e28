#pragma once

#include <cstdint>
#include <memory>

#include "io/backend.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

struct UringOptions {
  std::uint32_t depth = 64;
};

/// A Backend over one io_uring, probed with a write and a read of its own wake descriptor.
/// Errors: kUnavailable where the kernel or its settings forbid the ring or its operations,
/// kResourceExhausted under a lock or memory limit; the message names the errno and the remedy. Threads:
/// requests in flight end with the thread that submitted them, so that thread outlives them.
Result<std::unique_ptr<Backend>> open_uring_backend(const UringOptions& options);

}  // namespace sluice::io
