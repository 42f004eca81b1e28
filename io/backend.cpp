#include "io/backend.hpp"

#include <time.h>

namespace sluice::io {

std::string_view op_name(Op op) {
  switch (op) {
    case Op::kRead:
      return "read";
    case Op::kWrite:
      return "write";
    case Op::kFlush:
      return "flush";
    case Op::kDropCache:
      return "drop_cache";
  }
  return "?";
}

std::int64_t steady_now_ns() {
  // Not std::chrono, which goes through another library: between transfers of some MiB none of its pages is at hand.
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Status Backend::adopt() { return Status(); }

Status Backend::register_memory(std::span<const std::span<std::byte>>) {
  return Status(Code::kUnimplemented, std::string(name()) + " has no registered memory");
}

Status Backend::register_files(std::span<const int>) {
  return Status(Code::kUnimplemented, std::string(name()) + " has no registered files");
}

void Backend::unregister() {}

BackendUse Backend::in_use() const { return {}; }

}  // namespace sluice::io
