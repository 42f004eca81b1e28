#include "io/backend.hpp"

#include <chrono>

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
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
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
