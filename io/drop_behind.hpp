#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "io/backend.hpp"

namespace sluice::io {

/// Which ranges of buffered files leave the page cache, and when: what was read at once; what was written has
/// its writing begun at once and is dropped kWindowBytes of writes later, or with everything of its file after
/// a flush. Keeps the cache from filling with bytes that nobody reads from it again.
/// Decides only; whoever asks next() sends the requests. Ranges that touch are joined; where more are due than
/// are kept, the whole of a file stands for its ranges.
/// Cost: constant size, no allocation; a flush looks at all ranges kept.
class DropBehind {
 public:
  static constexpr std::size_t kRanges = 64;               ///< kept of each kind
  static constexpr std::uint64_t kJoinedBytes = 8 << 20;   ///< a joined range's most
  static constexpr std::uint64_t kWindowBytes = 32 << 20;  ///< written and not yet dropped
  static constexpr std::uint64_t kToTheEnd = 0;            ///< as posix_fadvise counts

  void read(int fd, std::uint64_t offset, std::uint64_t bytes) { add_due({fd, offset, bytes}); }
  void written(int fd, std::uint64_t offset, std::uint64_t bytes);
  void flushed(int fd);

  bool due() const { return due_.count > 0; }
  /// Makes `request` the next kDropCache. Requires: due().
  void next(Request& request);

 private:
  struct Range {
    int fd = -1;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  // or kToTheEnd
  };
  struct Ring {
    std::array<Range, kRanges> ranges;
    std::size_t first = 0;
    std::size_t count = 0;

    bool full() const { return count == kRanges; }
    Range& at(std::size_t position) { return ranges[(first + position) % kRanges]; }
    void push(const Range& range) { at(count++) = range; }
    Range pop();
    void forget(int fd);
    /// Returns: whether the last range could take this one in.
    bool join(const Range& range);
  };

  void add_due(const Range& range);
  void leave_window();

  Ring due_;
  Ring window_;  // written, its last range still growing
  std::uint64_t window_bytes_ = 0;
};

}  // namespace sluice::io
