#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/backend.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

enum class BackendKind : std::uint8_t {
  kAuto,  ///< the ring where it is allowed, else threads, with the reason
  kUring,
  kThreads,
};

struct BackendOptions {
  BackendKind kind = BackendKind::kAuto;
  std::uint32_t queue_depth = 64;  ///< requests in the kernel at once, 1 to 4096
  std::uint32_t threads = 16;      ///< workers of the thread backend, 1 to 256: its real depth
  std::vector<int> cpus = {};      ///< CPUs the workers may run on; empty: those of the calling thread
};

/// Invariant: `kind` is never kAuto, and `fallback_reason` is empty unless kAuto gave threads.
struct SelectedBackend {
  std::unique_ptr<Backend> backend;
  BackendKind kind = BackendKind::kThreads;
  std::string fallback_reason;  ///< "io_uring: Operation not permitted (EPERM): …; using threads"
};

/// "auto", "uring", "threads".
std::string_view backend_name(BackendKind kind);
/// Errors: kInvalidArgument naming the accepted words.
Result<BackendKind> parse_backend(std::string_view name);

/// Opens the asked backend and proves it with a real read and write.
/// Errors: kUring where it is forbidden: kUnavailable (or kResourceExhausted) with the remedy, never a silent
/// fall-back; options out of range: kInvalidArgument.
Result<SelectedBackend> open_backend(const BackendOptions& options);

}  // namespace sluice::io
