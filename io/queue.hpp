#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "io/backend.hpp"
#include "io/depth_control.hpp"
#include "io/drive_lane.hpp"
#include "io/drive_settings.hpp"
#include "io/drop_behind.hpp"
#include "io/file.hpp"
#include "io/request_list.hpp"
#include "io/transfer.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

/// Whether a drive is always given its depth, or the fewest requests that move as much.
enum class DepthUse : std::uint8_t {
  kFixed,
  kAdapted,  ///< between 2 and the depth, as DepthControl decides
};

struct QueueOptions {
  /// One a drive, at least one. Pieces are rounded down to the file's grid, at least one grid, and never larger
  /// than the backend's requests. Where the backend holds less than all depths together it is shared in
  /// proportion to them, at least 1 each.
  std::vector<DriveSettings> drives = {{}};
  DepthUse depth_use = DepthUse::kFixed;
};

/// Requests are what the backend was given; transfers what the caller submitted.
struct QueueCounters {
  std::uint64_t reads = 0, writes = 0, flushes = 0;  ///< requests finished, whatever their result
  std::uint64_t bytes_read = 0, bytes_written = 0;   ///< moved by the kernel, bytes moved twice counted twice
  std::uint64_t retries = 0;          ///< requests sent again after EINTR, a busy kernel or no progress
  std::uint64_t short_transfers = 0;  ///< requests that moved fewer bytes than asked
  std::uint64_t errors = 0;           ///< transfers that did not succeed, cancelled ones included
  std::uint64_t transfers = 0;        ///< transfers completed
  std::uint32_t max_in_flight = 0;    ///< most requests in the backend at once
};

/// Transfers over a backend: cuts them into pieces, bounds what is in flight on each drive, sends demand before
/// read-ahead before the background (DriveLane), resumes short requests, sends again what was interrupted or
/// found the kernel busy, and says of every failure what was being done to what. Transfers may run and complete
/// in any order: a read that must see a write is submitted after that write's on_done, and so is a flush.
/// What it moves to or from a buffered file leaves the page cache behind it (DropBehind); these requests are
/// the queue's own, a few at a time, counted nowhere, and their failure is no failure.
/// A drive that hangs holds up no other one where the backend runs as many requests at once as all depths together
/// and kOwnRequests.
/// Threads: everything but wake() belongs to one thread at a time, the backend's: another one takes it over
/// with backend().adopt() while nothing is in flight.
/// Lifetime: the backend and all files outlive the queue. A backend serves one queue.
/// Cost: no allocation after construction, but for the message of a failure; the clock is read at most once a
/// poll() that has something to do.
class Queue {
 public:
  /// How often a request is sent in a row without any progress before its transfer fails.
  static constexpr std::uint32_t kMaxTries = 1000;
  /// In the backend for itself at most, beside the drives' depths.
  static constexpr std::uint32_t kOwnRequests = 2;

  Queue(Backend& backend, const QueueOptions& options);

  /// Gives up what has not started, waits for what has, and completes everything (on_done is called).
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Takes a transfer; it starts with the next poll() or wait(). Allowed inside on_done.
  /// Completes exactly once, in a poll(), after the kernel has let go of all of its buffer. A transfer of
  /// zero bytes completes without touching the file. Errors (in `status`): kNoSpace, kIoError with the errno
  /// (EINVAL: the file system refuses direct I/O that it had accepted, see File::failure()); kDataLoss for a
  /// file that ends before the transfer; kInvalidArgument off the grid, without a file or for a drive that is
  /// not there; kAborted when cancelled.
  void submit(Transfer& transfer);

  /// Gives up the part of a submitted transfer that has not started. It completes as usual, with kAborted if
  /// anything of it was not moved.
  void cancel(Transfer& transfer);

  /// Takes what the backend has finished, keeps it busy and calls on_done of completed transfers.
  /// Returns: the number of transfers completed.
  /// Blocks: never.
  std::size_t poll();

  /// Starts what was submitted, then sleeps until poll() has something to do, wake(), or the deadline on
  /// backend().now_ns(). May return early. With more than one event, until as many requests have finished, or all
  /// that are in the backend where these are fewer: fewer sleeps, each request seen later. Whoever is to be woken
  /// waits for one: a wake() may count as no more.
  void wait(std::int64_t deadline_ns = kNoDeadline, std::uint32_t events = 1);

  /// Threads: any.
  void wake() { backend_.wake(); }

  /// Polls and waits until nothing is in flight and the backend holds no request.
  void drain();

  /// Transfers submitted and not completed.
  std::size_t in_flight() const { return in_flight_; }

  const QueueCounters& counters() const { return counters_; }

  /// Requests that the drive is given at once: its setting, or what DepthControl has made of it.
  /// Requires: a drive of the options.
  std::uint32_t depth(std::uint32_t drive) const { return drives_[drive].lane.depth(); }
  Backend& backend() const { return backend_; }

 private:
  static constexpr std::int64_t kNotRead = std::numeric_limits<std::int64_t>::min();
  struct Piece;
  struct Drive {
    explicit Drive(const DriveSettings& agreed)
        : settings(agreed), lane(agreed.depth), control(agreed.depth) {}

    DriveSettings settings;
    DriveLane lane;
    DepthControl control;
    DepthSample since_control;  // gathered
  };

  bool well_formed(const Transfer& transfer) const;
  Status refusal(const Transfer& transfer) const;
  std::int64_t now_ns();
  void fill();
  void cut(Drive& drive, Transfer& transfer);
  void resend_due();
  void send();
  void take_finished();
  void adapt_depths();
  void note_room();
  void finish(Piece& piece);
  void moved(Piece& piece, std::uint64_t bytes);
  void retry(Piece& piece, int error);
  void give_up(Piece& piece, Status status);
  void end_piece(Piece& piece);
  void fail(Transfer& transfer, Status status);
  void complete_if_finished(Transfer& transfer);
  std::size_t deliver();

  Backend& backend_;
  DepthUse depth_use_;
  std::vector<Drive> drives_;
  std::vector<Piece> pieces_;
  RequestList free_;
  RequestList ready_;           // to be sent
  RequestList paused_;          // to be sent again when due
  TransferList done_;           // to be delivered
  std::uint32_t requests_ = 0;  // pieces in the backend
  std::size_t in_flight_ = 0;
  bool closing_ = false;
  QueueCounters counters_;
  std::int64_t now_ns_ = kNotRead;  // the clock, read at most once in a poll() or wait()

  DropBehind drop_behind_;
  std::array<Request, kOwnRequests> drops_;
  RequestList free_drops_;
  std::uint32_t unsent_drops_ = 0;  // in ready_
};

}  // namespace sluice::io
