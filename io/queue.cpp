#include "io/queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace sluice::io {
namespace {

// A drive that says EAGAIN gets 50 us more of rest after each try, up to 1 ms: kMaxTries of them take about a
// second.
constexpr std::int64_t kPauseStepNs = 50'000;
constexpr std::int64_t kPauseMostNs = 1'000'000;

constexpr std::uint64_t kEnd = std::numeric_limits<std::int64_t>::max();  // of offsets

/// Requires: grid a power of two.
std::uint64_t round_down(std::uint64_t value, std::uint64_t grid) { return value & ~(grid - 1); }

/// What goes away by itself. A kernel short of memory for a moment is no reason to fail days of work.
bool transient(int error) { return error == EINTR || error == EAGAIN || error == EBUSY || error == ENOMEM; }

/// Each drive's depth out of `depth` in all. 100, 10 and 1 asked of 64: 1 each, then 61 shared as 99 : 9 : 0,
/// 1 + 55, 1 + 5 and 1.
std::vector<DriveSettings> agree(const std::vector<DriveSettings>& asked, const BackendLimits& limits) {
  std::vector<DriveSettings> agreed = asked.empty() ? std::vector<DriveSettings>(1) : asked;
  std::uint64_t sum = 0;
  for (DriveSettings& drive : agreed) {
    drive.piece_bytes = std::clamp(drive.piece_bytes, 1u, limits.max_request_bytes);
    drive.depth = std::max(drive.depth, 1u);
    sum += drive.depth;
  }
  if (sum <= limits.depth) return agreed;
  const std::uint64_t count = agreed.size();
  const std::uint64_t spare = limits.depth > count ? limits.depth - count : 0;
  for (DriveSettings& drive : agreed)
    drive.depth =
        1 + static_cast<std::uint32_t>((drive.depth - 1) * spare / std::max(sum - count, std::uint64_t{1}));
  return agreed;
}

std::string describe(const Request& request, const File& file) {
  if (request.op == Op::kFlush) return fmt::format("flush of {}", file.path());
  return fmt::format("{} of {} bytes at offset {} of {}", op_name(request.op), request.bytes, request.offset,
                     file.path());
}

}  // namespace

/// The part of a transfer that one request moves: [request.offset, + request.bytes) of the file.
struct Queue::Piece {
  Request request;
  Transfer* transfer = nullptr;
  Drive* drive = nullptr;
  std::uint32_t tries = 0;  // in a row without progress
  std::int64_t due_ns = 0;  // while paused
};

Queue::Queue(Backend& backend, const QueueOptions& options)
    : backend_(backend), depth_use_(options.depth_use) {
  std::size_t pieces = 0;
  for (const DriveSettings& settings : agree(options.drives, backend_.limits())) {
    drives_.emplace_back(settings);
    pieces += settings.depth;
  }
  pieces_.resize(pieces);
  for (Piece& piece : pieces_) {
    piece.request.owner = &piece;
    free_.push(piece.request);
  }
  for (Request& drop : drops_) free_drops_.push(drop);
}

Queue::~Queue() {
  closing_ = true;
  for (Drive& drive : drives_) {
    while (Transfer* transfer = drive.lane.first_waiting())
      fail(*transfer, Status(Code::kAborted, "the I/O queue was closed"));
  }
  drain();
}

void Queue::submit(Transfer& transfer) {
  const bool taken = !closing_ && well_formed(transfer);
  if (!taken) {
    transfer.status = refusal(transfer);
  } else if (!transfer.status.ok()) {
    transfer.status = Status();  // of an earlier use
  }
  transfer.done_bytes = 0;
  transfer.cut_bytes_ = 0;
  transfer.pieces_ = 0;
  ++in_flight_;
  transfer.cutting_ = taken && (transfer.op == Op::kFlush || transfer.bytes > 0);
  if (!transfer.cutting_) return done_.push(transfer);
  drives_[transfer.drive].lane.wait(transfer);
}

bool Queue::well_formed(const Transfer& transfer) const {
  if (transfer.drive >= drives_.size() || transfer.op == Op::kDropCache) return false;
  if (transfer.op != Op::kFlush && transfer.bytes == 0) return true;
  if (transfer.file == nullptr) return false;
  if (transfer.op == Op::kFlush) return true;
  const Grid grid = transfer.file->grid();
  return transfer.buffer != nullptr && transfer.offset <= kEnd && transfer.bytes <= kEnd - transfer.offset &&
         ((transfer.offset | transfer.bytes) & (grid.offset_bytes - 1)) == 0 &&
         (reinterpret_cast<std::uintptr_t>(transfer.buffer) & (grid.memory_bytes - 1)) == 0;
}

Status Queue::refusal(const Transfer& transfer) const {
  if (closing_) return Status(Code::kAborted, "the I/O queue is closed");
  const auto invalid = [](std::string why) { return Status(Code::kInvalidArgument, std::move(why)); };
  if (transfer.drive >= drives_.size()) {
    return invalid(fmt::format("transfer on drive {}: the queue has {}", transfer.drive, drives_.size()));
  }
  if (transfer.op == Op::kDropCache) return invalid("a transfer reads, writes or flushes");
  if (transfer.file == nullptr) return invalid("transfer without a file");
  if (transfer.buffer == nullptr) {
    return invalid(fmt::format("{} of {} without a buffer", op_name(transfer.op), transfer.file->path()));
  }
  const Grid grid = transfer.file->grid();
  return invalid(fmt::format(
      "{} of {} bytes at offset {} of {} from memory at {}: the file's grid is {} bytes, {} in memory",
      op_name(transfer.op), transfer.bytes, transfer.offset, transfer.file->path(),
      static_cast<const void*>(transfer.buffer), grid.offset_bytes, grid.memory_bytes));
}

void Queue::cancel(Transfer& transfer) {
  if (!transfer.cutting_) return;
  fail(transfer, Status(Code::kAborted,
                        fmt::format("{} of {} was cancelled", op_name(transfer.op), transfer.file->path())));
}

std::int64_t Queue::now_ns() {
  if (now_ns_ == kNotRead) now_ns_ = backend_.now_ns();
  return now_ns_;
}

std::size_t Queue::poll() {
  now_ns_ = kNotRead;
  take_finished();
  if (depth_use_ == DepthUse::kAdapted) adapt_depths();
  fill();
  const std::size_t delivered = deliver();
  if (delivered > 0) fill();  // what on_done submitted
  return delivered;
}

void Queue::wait(std::int64_t deadline_ns, std::uint32_t events) {
  now_ns_ = kNotRead;
  fill();
  if (!done_.empty()) return;
  if (depth_use_ == DepthUse::kAdapted) note_room();
  for (const Request* request = paused_.first; request != nullptr; request = request->next) {
    deadline_ns = std::min(deadline_ns, static_cast<const Piece*>(request->owner)->due_ns);
  }
  backend_.wait(deadline_ns, events);
}

void Queue::drain() {
  while (in_flight_ > 0) {
    poll();
    if (in_flight_ > 0) wait();
  }
  for (send(); free_drops_.count < drops_.size(); send()) {
    backend_.wait(kNoDeadline, 1);
    take_finished();
  }
}

void Queue::fill() {
  resend_due();
  for (Drive& drive : drives_) {
    while (Transfer* transfer = drive.lane.start()) cut(drive, *transfer);
  }
  send();
}

void Queue::cut(Drive& drive, Transfer& transfer) {
  Piece& piece = *static_cast<Piece*>(free_.pop().owner);
  const bool flush = transfer.op == Op::kFlush;
  piece.transfer = &transfer;
  piece.drive = &drive;
  piece.tries = 0;
  piece.request.op = transfer.op;
  piece.request.fd = transfer.file->fd();
  if (flush) {
    piece.request.bytes = 0;
    piece.request.offset = 0;
    piece.request.buffer = nullptr;
  } else {
    const std::uint64_t grid = transfer.file->grid().offset_bytes;
    const std::uint64_t most = std::max(grid, round_down(drive.settings.piece_bytes, grid));
    piece.request.bytes = static_cast<std::uint32_t>(std::min(most, transfer.bytes - transfer.cut_bytes_));
    piece.request.offset = transfer.offset + transfer.cut_bytes_;
    piece.request.buffer = transfer.buffer + transfer.cut_bytes_;
    transfer.cut_bytes_ += piece.request.bytes;
  }
  ++transfer.pieces_;
  ready_.push(piece.request);
  if (flush || transfer.cut_bytes_ == transfer.bytes) {
    transfer.cutting_ = false;
    drive.lane.leave(transfer);
  }
}

void Queue::send() {
  while (drop_behind_.due() && !free_drops_.empty()) {
    Request& drop = free_drops_.pop();
    drop_behind_.next(drop);
    ready_.push(drop);
    ++unsent_drops_;
  }
  if (ready_.empty()) return;
  const std::uint32_t offered = ready_.count - unsent_drops_;
  unsent_drops_ = 0;
  RequestList rest;
  for (Request* request = backend_.submit(ready_.take()); request != nullptr;) {
    Request* next = request->next;
    if (request->op == Op::kDropCache) ++unsent_drops_;
    rest.push(*request);
    request = next;
  }
  ready_ = rest;
  requests_ += offered - (rest.count - unsent_drops_);
  counters_.max_in_flight = std::max(counters_.max_in_flight, requests_);
}

void Queue::resend_due() {
  if (paused_.empty()) return;
  RequestList waiting = std::exchange(paused_, {});
  while (!waiting.empty()) {
    Piece& piece = *static_cast<Piece*>(waiting.pop().owner);
    if (!piece.transfer->status.ok()) {
      end_piece(piece);
    } else if (piece.due_ns <= now_ns()) {
      ready_.push(piece.request);
    } else {
      paused_.push(piece.request);
    }
  }
}

void Queue::take_finished() {
  for (Request* request = backend_.reap(); request != nullptr;) {
    Request* next = request->next;
    if (request->op == Op::kDropCache) {
      free_drops_.push(*request);
    } else {
      --requests_;
      finish(*static_cast<Piece*>(request->owner));
    }
    request = next;
  }
}

void Queue::adapt_depths() {
  note_room();
  for (Drive& drive : drives_) {
    DepthSample& sample = drive.since_control;
    if (sample.pieces == 0 && sample.kept_full) continue;
    sample.now_ns = now_ns();
    drive.control.observe(sample);
    drive.lane.set_depth(drive.control.depth());
    sample = {.kept_full = true};
  }
}

void Queue::note_room() {
  for (Drive& drive : drives_) {
    if (drive.lane.in_flight() < drive.lane.depth() && drive.lane.first_waiting() == nullptr)
      drive.since_control.kept_full = false;
  }
}

void Queue::finish(Piece& piece) {
  Request& request = piece.request;
  Transfer& transfer = *piece.transfer;
  const bool failed = request.result < 0;
  const std::uint64_t bytes = failed ? 0 : static_cast<std::uint64_t>(request.result);
  if (request.op == Op::kFlush) {
    ++counters_.flushes;
  } else {
    const bool read = request.op == Op::kRead;
    ++(read ? counters_.reads : counters_.writes);
    (read ? counters_.bytes_read : counters_.bytes_written) += bytes;
    DepthSample& sample = piece.drive->since_control;
    ++sample.pieces;
    (read ? sample.bytes_read : sample.bytes_written) += bytes;
  }
  if (failed) {
    const int error = static_cast<int>(-request.result);
    if (transient(error)) return retry(piece, error);
    return give_up(piece, transfer.file->failure(error, describe(request, *transfer.file)));
  }
  if (request.op == Op::kFlush) {
    if (!transfer.file->direct()) drop_behind_.flushed(request.fd);
    return end_piece(piece);
  }
  moved(piece, bytes);
}

void Queue::moved(Piece& piece, std::uint64_t bytes) {
  Request& request = piece.request;
  Transfer& transfer = *piece.transfer;
  const File& file = *transfer.file;
  const bool whole = bytes == request.bytes;
  // The rest starts on the grid: 5000 bytes moved on a grid of 4096 are 4096 done and 904 to be moved again.
  const std::uint64_t kept = whole ? bytes : round_down(bytes, file.grid().offset_bytes);
  transfer.done_bytes += kept;
  if (!file.direct() && kept > 0) {
    request.op == Op::kRead ? drop_behind_.read(request.fd, request.offset, kept)
                            : drop_behind_.written(request.fd, request.offset, kept);
  }
  if (whole) return end_piece(piece);

  ++counters_.short_transfers;
  if (kept > 0) {
    piece.tries = 0;
    request.offset += kept;
    request.bytes -= static_cast<std::uint32_t>(kept);
    request.buffer = static_cast<std::byte*>(request.buffer) + kept;
    return transfer.status.ok() ? ready_.push(piece.request) : end_piece(piece);
  }
  if (request.op == Op::kRead) {
    const Result<std::uint64_t> size_bytes = file.size();
    if (size_bytes.ok() && *size_bytes <= request.offset + bytes) {
      return give_up(piece, Status(Code::kDataLoss, fmt::format("{}: truncated, the file has {} bytes",
                                                                describe(request, file), *size_bytes)));
    }
  }
  retry(piece, EIO);
}

void Queue::retry(Piece& piece, int error) {
  Transfer& transfer = *piece.transfer;
  if (++piece.tries >= kMaxTries) {
    return give_up(piece, transfer.file->failure(
                              error, fmt::format("{}, tried {} times",
                                                 describe(piece.request, *transfer.file), kMaxTries)));
  }
  if (!transfer.status.ok()) return end_piece(piece);
  ++counters_.retries;
  if (error == EINTR) return ready_.push(piece.request);
  piece.due_ns = now_ns() + std::min(kPauseStepNs * piece.tries, kPauseMostNs);
  paused_.push(piece.request);
}

void Queue::give_up(Piece& piece, Status status) {
  fail(*piece.transfer, std::move(status));
  end_piece(piece);
}

void Queue::end_piece(Piece& piece) {
  Transfer& transfer = *piece.transfer;
  piece.drive->lane.end(transfer.priority);
  --transfer.pieces_;
  free_.push(piece.request);
  complete_if_finished(transfer);
}

void Queue::fail(Transfer& transfer, Status status) {
  if (transfer.status.ok()) transfer.status = std::move(status);
  if (!transfer.cutting_) return;
  transfer.cutting_ = false;
  drives_[transfer.drive].lane.leave(transfer);
  complete_if_finished(transfer);
}

void Queue::complete_if_finished(Transfer& transfer) {
  if (transfer.pieces_ == 0 && !transfer.cutting_) done_.push(transfer);
}

std::size_t Queue::deliver() {
  std::size_t delivered = 0;
  // Transfers that on_done submits wait for the next poll, so a caller that always submits again does not
  // stay here.
  for (TransferList batch = std::exchange(done_, {}); !batch.empty(); ++delivered) {
    Transfer& transfer = batch.pop();
    --in_flight_;
    ++counters_.transfers;
    if (!transfer.status.ok()) ++counters_.errors;
    if (transfer.on_done != nullptr) transfer.on_done(transfer);
  }
  return delivered;
}

}  // namespace sluice::io
