#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/placement.hpp"
#include "sluice/status.hpp"

namespace sluice::memory {

struct Topology;

enum class HugePages : std::uint8_t {
  kTry,    ///< transparent huge pages where the kernel gives them
  kNever,  ///< 4 KiB pages
};

struct ArenaOptions {
  std::uint64_t bytes = 0;
  std::string purpose;                 ///< named in errors: "host frames"
  std::uint32_t prefault_threads = 1;  ///< 1..1024, the caller among them
  HugePages huge_pages = HugePages::kTry;
  MemoryPolicy policy = MemoryPolicy::kFirstTouch;
  std::vector<std::uint32_t> nodes = {};  ///< for the policy
  const Topology* topology = nullptr;     ///< that the nodes are of; not needed with kFirstTouch
};

/// A block of zeroed memory that is all there before its first use.
/// Invariant: resident bytes = align_up(bytes, 4096), never a power of two above; span() starts on 2 MiB.
/// Lifetime: move-only, unmapped when dropped. A forked child does not inherit the pages (MADV_DONTFORK),
/// and an Arena dropped there does nothing.
class Arena {
 public:
  /// Maps and faults in `bytes`; 0 gives an empty arena.
  /// Errors: kInvalidArgument for prefault_threads out of range; kResourceExhausted, before any page is
  /// touched, with what is asked and what the machine and the control group have left. Nodes that are refused
  /// are no error: binding() tells.
  /// Blocks: until every page is there.
  /// Cost: 0.3-0.6 GB/s a thread on fresh memory (2 vCPUs of Zen 5, 2026-11).
  static Result<Arena> create(const ArenaOptions& options);

  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  std::span<std::byte> span() const { return {data_, bytes_}; }

  /// What the kernel reported in use after the pages were faulted in: "huge pages (transparent)", "4 KiB
  /// pages", "huge pages (transparent) for 2048 of 3072 KiB, else 4 KiB pages", "pages of unknown size"
  /// without /proc, "none" when empty.
  const std::string& backing() const { return backing_; }

  /// Why the pages were not bound to the nodes that were asked for; ok when they were, or none were.
  const Status& binding() const { return binding_; }

  /// Of the arena, what is from the hugetlb pool (outside VmRSS): none is.
  std::uint64_t hugetlb_bytes() const { return 0; }

 private:
  void unmap();

  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  pid_t owner_ = 0;
  std::string backing_ = "none";
  Status binding_;
};

}  // namespace sluice::memory
