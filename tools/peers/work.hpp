#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "peers/block_order.hpp"
#include "peers/process_cpu.hpp"

namespace sluice::peers {

/// What a loop is to do with a file that is full of data.
struct Work {
  int fd = -1;
  std::uint64_t file_bytes = 0;
  std::uint64_t block_bytes = 0;  ///< of a request
  std::uint32_t depth = 0;        ///< requests in flight
  Mix mix = Mix::kRead;
  Pattern pattern = Pattern::kSequential;
  std::span<std::byte> memory;  ///< at least depth x block_bytes, aligned for the file
  double seconds = 0;           ///< no request is begun afterwards
  std::uint64_t bytes_max = std::numeric_limits<std::uint64_t>::max();  ///< of requests that are begun
  bool (*stopped)() = nullptr;  ///< asked now and then; true: no request is begun any more
};

/// What a loop did.
struct Moved {
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< until the last request was finished
  CpuSeconds cpu;
  std::string how;  ///< what it had of what the kernel may offer: "fixed buffers, fixed file, defer_taskrun"
};

}  // namespace sluice::peers
