#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/backend.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

struct ThreadBackendOptions {
  std::uint32_t depth = 64;
  std::uint32_t threads = 16;
  std::vector<int> cpus = {};  ///< CPUs the workers may run on; empty: those of the calling thread
};

/// A Backend whose workers call pread, pwrite and fdatasync. The workers sleep when there is nothing to do,
/// take no signals, and end in the destructor after finishing what was submitted. Errors: kResourceExhausted
/// when the threads cannot be made; kInvalidArgument for CPUs that may not be used.
Result<std::unique_ptr<Backend>> open_thread_backend(const ThreadBackendOptions& options);

}  // namespace sluice::io
