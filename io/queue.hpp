#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/backend.hpp"
#include "io/drive_settings.hpp"
#include "io/file.hpp"
#include "io/request_list.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

/// Which transfer's pieces go first when there is room for one.
enum class Priority : std::uint8_t {
  kDemand,  ///< somebody waits for it
  kReadAhead,
  kWriteBehind,
};
inline constexpr std::size_t kPriorityCount = 3;

/// One movement of bytes between memory and a file, of any length. May be derived from.
/// Requires: for a direct file, buffer, offset and bytes on its grid.
/// Lifetime: owned by the caller; it, its buffer and its file stay, untouched, from Queue::submit() until
/// on_done.
struct Transfer {
  Op op = Op::kRead;
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
  std::uint64_t cut_bytes_ = 0;  ///< [0, cut_bytes_) has been given to pieces
  std::uint32_t pieces_ = 0;     ///< alive now
  bool cutting_ = false;         ///< in a list of transfers with something left to cut
};

/// A first-in, first-out list of transfers.
struct TransferList {
  Transfer* first = nullptr;
  Transfer* last = nullptr;

  bool empty() const { return first == nullptr; }
  void push(Transfer& transfer);
  Transfer& pop();
  void remove(Transfer& transfer);
};

struct QueueOptions {
  /// One a drive, at least one. Pieces are rounded down to the file's grid, at least one grid; a drive's depth
  /// is at most its equal share of the backend's.
  std::vector<DriveSettings> drives = {{}};
};

/// Requests are what the backend was given; transfers what the caller submitted.
struct QueueCounters {
  std::uint64_t reads = 0, writes = 0, flushes = 0;  ///< requests finished, whatever their result
  std::uint64_t bytes_read = 0, bytes_written = 0;   ///< moved by the kernel, bytes moved twice counted twice
  std::uint64_t retries = 0;          ///< requests sent again after EINTR, EAGAIN or no progress
  std::uint64_t short_transfers = 0;  ///< requests that moved fewer bytes than asked
  std::uint64_t errors = 0;           ///< transfers that did not succeed, cancelled ones included
  std::uint64_t transfers = 0;        ///< transfers completed
  std::uint32_t max_in_flight = 0;    ///< most requests in the backend at once
};

/// Transfers over a backend: cuts them into pieces, bounds what is in flight, sends demand before read-ahead
/// before write-behind (a waiting class is served after kPatience pieces of higher ones), resumes short
/// requests, retries EINTR and EAGAIN, and says of every failure what was being done to what. Transfers may
/// run and complete in any order: a read that must see a write is submitted after that write's on_done, and
/// so is a flush.
/// Threads: everything but wake() belongs to one thread at a time, the backend's: another one takes it over
/// with backend().adopt() while nothing is in flight.
/// Lifetime: the backend and all files outlive the queue. A backend serves one queue.
/// Cost: no allocation after construction, but for the message of a failure.
class Queue {
 public:
  /// A class of transfers that waits is passed over at most this often.
  static constexpr std::uint32_t kPatience = 8;
  /// How often a request is sent in a row without any progress before its transfer fails.
  static constexpr std::uint32_t kMaxTries = 1000;

  Queue(Backend& backend, const QueueOptions& options);

  /// Gives up what has not started, waits for what has, and completes everything (on_done is called).
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Takes a transfer; it starts with the next poll() or wait(). Allowed inside on_done.
  /// Completes exactly once, in a poll(), after the kernel has let go of all of its buffer. A transfer of
  /// zero bytes completes without touching the file. Errors (in `status`): kNoSpace, kIoError with the errno;
  /// kDataLoss for a file that ends before the transfer; kInvalidArgument off the grid, without a file or for
  /// a drive that is not there; kAborted when cancelled.
  void submit(Transfer& transfer);

  /// Gives up the part of a submitted transfer that has not started. It completes as usual, with kAborted if
  /// anything of it was not moved.
  void cancel(Transfer& transfer);

  /// Takes what the backend has finished, keeps it busy and calls on_done of completed transfers.
  /// Returns: the number of transfers completed.
  /// Blocks: never.
  std::size_t poll();

  /// Starts what was submitted, then sleeps until poll() has something to do, wake(), or the deadline on
  /// backend().now_ns(). May return early.
  void wait(std::int64_t deadline_ns = kNoDeadline);

  /// Threads: any.
  void wake() { backend_.wake(); }

  /// Polls and waits until nothing is in flight.
  void drain();

  /// Transfers submitted and not completed.
  std::size_t in_flight() const { return in_flight_; }

  const QueueCounters& counters() const { return counters_; }
  Backend& backend() const { return backend_; }

 private:
  struct Piece;
  struct Lane {  // one drive
    std::array<TransferList, kPriorityCount> waiting;
    std::array<std::uint32_t, kPriorityCount> passed_over = {};
    DriveSettings settings;
    std::uint32_t pieces = 0;  // alive, at most settings.depth
  };

  Status check(const Transfer& transfer) const;
  void fill();
  Transfer* next_to_cut(Lane& lane);
  void cut(Lane& lane, Transfer& transfer);
  void resend_due();
  void take_finished();
  void finish(Piece& piece);
  void retry(Piece& piece, int error);
  void end_piece(Piece& piece);
  void fail(Transfer& transfer, Status status);
  void complete_if_finished(Transfer& transfer);
  std::size_t deliver();

  Backend& backend_;
  std::vector<Lane> lanes_;
  std::vector<Piece> pieces_;
  RequestList free_;
  RequestList ready_;           // to be sent
  RequestList paused_;          // to be sent again when due
  TransferList done_;           // to be delivered
  std::uint32_t requests_ = 0;  // in the backend
  std::size_t in_flight_ = 0;
  bool closing_ = false;
  QueueCounters counters_;
};

}  // namespace sluice::io
