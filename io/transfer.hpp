#pragma once

#include <cstddef>
#include <cstdint>

#include "io/backend.hpp"
#include "io/file.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

/// Which transfer's pieces go first when there is room for one.
enum class Priority : std::uint8_t {
  kDemand,  ///< somebody waits for it
  kReadAhead,
  kBackground,  ///< write-behind, and reads of what is wanted long after
};
inline constexpr std::size_t kPriorityCount = 3;

/// One movement of bytes between memory and a file, of any length. May be derived from.
/// Requires: for a direct file, buffer, offset and bytes on its grid.
/// Lifetime: owned by the caller; it, its buffer and its file stay, untouched, from Queue::submit() until
/// on_done.
struct Transfer {
  Op op = Op::kRead;  ///< not kDropCache
  Priority priority = Priority::kDemand;
  std::uint32_t drive =
      0;  ///< each drive has a depth of its own, so that a slow one does not hold up the others
  const File* file = nullptr;
  std::byte* buffer = nullptr;  ///< only read from by a write
  std::uint64_t bytes = 0;      ///< 0 for a flush
  std::uint64_t offset = 0;
  void (*on_done)(Transfer&) = nullptr;
  void* owner = nullptr;  ///< the caller's

  Status status;                 ///< valid in on_done and after
  std::uint64_t done_bytes = 0;  ///< all of `bytes` exactly when a read or write has succeeded

 private:
  friend class Queue;
  friend struct TransferList;
  Transfer* next_ = nullptr;
  Transfer* previous_ = nullptr;
  std::uint64_t cut_bytes_ = 0;  ///< [0, cut_bytes_) has been given to pieces
  std::uint32_t pieces_ = 0;     ///< alive now
  bool cutting_ = false;         ///< in a list of transfers with something left to cut
};

/// A first-in, first-out list of transfers, each in one list at most.
/// Cost: constant for every call.
struct TransferList {
  Transfer* first = nullptr;
  Transfer* last = nullptr;

  bool empty() const { return first == nullptr; }
  void push(Transfer& transfer) {
    transfer.next_ = nullptr;
    transfer.previous_ = last;
    (last == nullptr ? first : last->next_) = &transfer;
    last = &transfer;
  }
  /// Requires: in this list.
  void remove(Transfer& transfer) {
    (transfer.previous_ == nullptr ? first : transfer.previous_->next_) = transfer.next_;
    (transfer.next_ == nullptr ? last : transfer.next_->previous_) = transfer.previous_;
  }
  /// Requires: not empty.
  Transfer& pop() {
    Transfer& transfer = *first;
    remove(transfer);
    return transfer;
  }
};

}  // namespace sluice::io
