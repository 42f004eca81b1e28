#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::bench {

enum class Access : std::uint8_t {
  kRead,
  kWrite,
  kRewrite,  ///< read, and written with what was read
};

/// An array that a kernel goes through, and how.
struct Stream {
  std::byte* data = nullptr;
  std::size_t granule_bytes = 0;  ///< for 256 elements: 1024 of fp32, 4 of a scale
  Access access = Access::kRead;
};

/// Reads and writes exactly the bytes of a kernel that goes once through the streams side by side, on the target
/// that kernels run on, with the least computing that a compiler cannot remove.
/// Requires: granule_bytes is a multiple of 4; only streams that are rewritten have one that 256 does not divide.
/// Source: no loop of blocks of 32, 64 or 256 elements, with and without prefetching 256 to 2048 elements ahead,
/// was faster than another by more than their noise of 2 % (2 vCPUs of an Intel Xeon with AVX-512 FP16, 2026-12).
void same_bytes(std::span<const Stream> streams, std::size_t granules);

}  // namespace sluice::bench
