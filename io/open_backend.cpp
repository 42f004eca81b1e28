#include "io/open_backend.hpp"

#include <fmt/format.h>

#include <utility>

#include "io/thread_backend.hpp"
#include "io/uring_backend.hpp"

namespace sluice::io {
namespace {

constexpr std::uint32_t kMostDepth = 4096;
constexpr std::uint32_t kMostThreads = 256;

Status check(std::string_view field, std::uint32_t value, std::uint32_t most) {
  if (value >= 1 && value <= most) return Status();
  return Status(Code::kInvalidArgument, fmt::format("{} is {}: it must be 1 to {}", field, value, most));
}

}  // namespace

std::string_view backend_name(BackendKind kind) {
  switch (kind) {
    case BackendKind::kAuto:
      return "auto";
    case BackendKind::kUring:
      return "uring";
    case BackendKind::kThreads:
      return "threads";
  }
  return "?";
}

Result<BackendKind> parse_backend(std::string_view name) {
  for (const BackendKind kind : {BackendKind::kAuto, BackendKind::kUring, BackendKind::kThreads}) {
    if (name == backend_name(kind)) return kind;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("backend is \"{}\": it must be auto, uring or threads", name));
}

Result<SelectedBackend> open_backend(const BackendOptions& options) {
  SLUICE_RETURN_IF_ERROR(check("queue_depth", options.queue_depth, kMostDepth));
  SLUICE_RETURN_IF_ERROR(check("threads", options.threads, kMostThreads));
  SelectedBackend selected;
  if (options.kind != BackendKind::kThreads) {
    Result<std::unique_ptr<Backend>> ring = open_uring_backend({.depth = options.queue_depth});
    if (ring.ok()) {
      selected.backend = std::move(*ring);
      selected.kind = BackendKind::kUring;
      return selected;
    }
    if (options.kind == BackendKind::kUring) return ring.status();
    selected.fallback_reason = ring.status().message() + "; using threads";
  }
  Result<std::unique_ptr<Backend>> threads =
      open_thread_backend({.depth = options.queue_depth, .threads = options.threads, .cpus = options.cpus});
  if (!threads.ok()) return threads.status();
  selected.backend = std::move(*threads);
  selected.kind = BackendKind::kThreads;
  return selected;
}

}  // namespace sluice::io
