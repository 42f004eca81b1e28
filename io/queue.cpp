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

std::uint64_t round_down(std::uint64_t value, std::uint64_t grid) { return value / grid * grid; }

std::string describe(const Request& request, const File& file) {
  if (request.op == Op::kFlush) return fmt::format("flush of {}", file.path());
  return fmt::format("{} of {} bytes at offset {} of {}", op_name(request.op), request.bytes, request.offset,
                     file.path());
}

}  // namespace

void TransferList::push(Transfer& transfer) {
  transfer.next_ = nullptr;
  (last == nullptr ? first : last->next_) = &transfer;
  last = &transfer;
}

Transfer& TransferList::pop() {
  Transfer& transfer = *first;
  remove(transfer);
  return transfer;
}

void TransferList::remove(Transfer& transfer) {
  Transfer* before = nullptr;
  for (Transfer* at = first; at != &transfer; at = at->next_) before = at;
  (before == nullptr ? first : before->next_) = transfer.next_;
  if (last == &transfer) last = before;
  transfer.next_ = nullptr;
}

/// The part of a transfer that one request moves: [request.offset, + request.bytes) of the file.
struct Queue::Piece {
  Request request;
  Transfer* transfer = nullptr;
  std::uint32_t tries = 0;  // in a row without progress
  std::int64_t due_ns = 0;  // while paused
};

Queue::Queue(Backend& backend, const QueueOptions& options) : backend_(backend) {
  lanes_.resize(std::max<std::size_t>(options.drives.size(), 1));
  const std::uint32_t share = backend_.limits().depth / static_cast<std::uint32_t>(lanes_.size());
  std::size_t pieces = 0;
  for (std::size_t drive = 0; drive < lanes_.size(); ++drive) {
    const DriveSettings asked = drive < options.drives.size() ? options.drives[drive] : DriveSettings();
    lanes_[drive].settings = {.piece_bytes = std::clamp(asked.piece_bytes, 1u, kMaxRequestBytes),
                              .depth = std::clamp(share, 1u, std::max(asked.depth, 1u))};
    pieces += lanes_[drive].settings.depth;
  }
  pieces_.resize(pieces);
  for (Piece& piece : pieces_) {
    piece.request.owner = &piece;
    free_.push(piece.request);
  }
}

Queue::~Queue() {
  closing_ = true;
  for (Lane& lane : lanes_) {
    for (TransferList& list : lane.waiting) {
      while (!list.empty()) fail(*list.first, Status(Code::kAborted, "the I/O queue was closed"));
    }
  }
  drain();
}

void Queue::submit(Transfer& transfer) {
  transfer.status = closing_ ? Status(Code::kAborted, "the I/O queue is closed") : check(transfer);
  transfer.done_bytes = 0;
  transfer.cut_bytes_ = 0;
  transfer.pieces_ = 0;
  ++in_flight_;
  const bool has_work = transfer.op == Op::kFlush || transfer.bytes > 0;
  transfer.cutting_ = has_work && transfer.status.ok();
  if (transfer.cutting_) {
    lanes_[transfer.drive].waiting[static_cast<std::size_t>(transfer.priority)].push(transfer);
  } else {
    done_.push(transfer);
  }
}

Status Queue::check(const Transfer& transfer) const {
  const auto invalid = [](std::string why) { return Status(Code::kInvalidArgument, std::move(why)); };
  if (transfer.drive >= lanes_.size()) {
    return invalid(fmt::format("transfer on drive {}: the queue has {}", transfer.drive, lanes_.size()));
  }
  if (transfer.op != Op::kFlush && transfer.bytes == 0) return Status();
  if (transfer.file == nullptr) return invalid("transfer without a file");
  if (transfer.op == Op::kFlush) return Status();
  if (transfer.buffer == nullptr) {
    return invalid(fmt::format("{} of {} without a buffer", op_name(transfer.op), transfer.file->path()));
  }
  constexpr std::uint64_t kEnd = std::numeric_limits<std::int64_t>::max();
  const Grid grid = transfer.file->grid();
  const bool on_grid = transfer.offset % grid.offset_bytes == 0 && transfer.bytes % grid.offset_bytes == 0 &&
                       reinterpret_cast<std::uintptr_t>(transfer.buffer) % grid.memory_bytes == 0;
  if (transfer.offset > kEnd || transfer.bytes > kEnd - transfer.offset || !on_grid) {
    return invalid(fmt::format(
        "{} of {} bytes at offset {} of {} from memory at {}: the file's grid is {} bytes, {} in memory",
        op_name(transfer.op), transfer.bytes, transfer.offset, transfer.file->path(),
        static_cast<const void*>(transfer.buffer), grid.offset_bytes, grid.memory_bytes));
  }
  return Status();
}

void Queue::cancel(Transfer& transfer) {
  if (!transfer.cutting_) return;
  fail(transfer, Status(Code::kAborted,
                        fmt::format("{} of {} was cancelled", op_name(transfer.op), transfer.file->path())));
}

std::size_t Queue::poll() {
  take_finished();
  fill();
  const std::size_t delivered = deliver();
  if (delivered > 0) fill();  // what on_done submitted
  return delivered;
}

void Queue::wait(std::int64_t deadline_ns) {
  fill();
  if (!done_.empty()) return;
  for (const Request* request = paused_.first; request != nullptr; request = request->next) {
    deadline_ns = std::min(deadline_ns, static_cast<const Piece*>(request->owner)->due_ns);
  }
  backend_.wait(deadline_ns);
}

void Queue::drain() {
  while (in_flight_ > 0) {
    poll();
    if (in_flight_ > 0) wait();
  }
}

void Queue::fill() {
  resend_due();
  for (bool found = true; found;) {
    found = false;
    for (Lane& lane : lanes_) {  // one piece a drive in turn, so that each gets its share of the backend
      Transfer* transfer = lane.pieces < lane.settings.depth ? next_to_cut(lane) : nullptr;
      if (transfer == nullptr) continue;
      cut(lane, *transfer);
      found = true;
    }
  }
  if (ready_.empty()) return;
  const std::uint32_t offered = ready_.count;
  RequestList rest;
  for (Request* request = backend_.submit(ready_.take()); request != nullptr;) {
    Request* next = request->next;
    rest.push(*request);
    request = next;
  }
  ready_ = rest;
  requests_ += offered - rest.count;
  counters_.max_in_flight = std::max(counters_.max_in_flight, requests_);
}

Transfer* Queue::next_to_cut(Lane& lane) {
  std::size_t chosen = kPriorityCount;
  for (std::size_t c = kPriorityCount; c-- > 0;) {
    if (lane.waiting[c].empty()) continue;
    chosen = c;
    if (lane.passed_over[c] >= kPatience) break;
  }
  if (chosen == kPriorityCount) return nullptr;
  lane.passed_over[chosen] = 0;
  for (std::size_t c = chosen + 1; c < kPriorityCount; ++c) {
    if (!lane.waiting[c].empty()) ++lane.passed_over[c];
  }
  return lane.waiting[chosen].first;
}

void Queue::cut(Lane& lane, Transfer& transfer) {
  Piece& piece = *static_cast<Piece*>(free_.pop().owner);
  const std::uint64_t grid = transfer.file->grid().offset_bytes;
  const std::uint64_t most = std::max(grid, round_down(lane.settings.piece_bytes, grid));
  const std::uint64_t bytes = std::min(most, transfer.bytes - transfer.cut_bytes_);
  const bool flush = transfer.op == Op::kFlush;

  piece.transfer = &transfer;
  piece.tries = 0;
  piece.request.op = transfer.op;
  piece.request.fd = transfer.file->fd();
  piece.request.bytes = flush ? 0 : static_cast<std::uint32_t>(bytes);
  piece.request.offset = flush ? 0 : transfer.offset + transfer.cut_bytes_;
  piece.request.buffer = flush ? nullptr : transfer.buffer + transfer.cut_bytes_;
  ready_.push(piece.request);

  ++lane.pieces;
  ++transfer.pieces_;
  transfer.cut_bytes_ += piece.request.bytes;
  if (flush || transfer.cut_bytes_ == transfer.bytes) {
    transfer.cutting_ = false;
    lane.waiting[static_cast<std::size_t>(transfer.priority)].remove(transfer);
  }
}

void Queue::resend_due() {
  if (paused_.empty()) return;
  const std::int64_t now_ns = backend_.now_ns();
  RequestList waiting = std::exchange(paused_, {});
  while (!waiting.empty()) {
    Piece& piece = *static_cast<Piece*>(waiting.pop().owner);
    if (!piece.transfer->status.ok()) {
      end_piece(piece);
    } else {
      (piece.due_ns <= now_ns ? ready_ : paused_).push(piece.request);
    }
  }
}

void Queue::take_finished() {
  for (Request* request = backend_.reap(); request != nullptr;) {
    Request* next = request->next;
    --requests_;
    finish(*static_cast<Piece*>(request->owner));
    request = next;
  }
}

void Queue::finish(Piece& piece) {
  Request& request = piece.request;
  Transfer& transfer = *piece.transfer;
  const bool read = request.op == Op::kRead;
  ++(read ? counters_.reads : request.op == Op::kWrite ? counters_.writes : counters_.flushes);

  if (request.result < 0) {
    const int error = static_cast<int>(-request.result);
    if (error == EINTR || error == EAGAIN) return retry(piece, error);
    fail(transfer, status_from_errno(error, describe(request, *transfer.file)));
    return end_piece(piece);
  }
  if (request.op == Op::kFlush) return end_piece(piece);

  const std::uint64_t moved = static_cast<std::uint64_t>(request.result);
  (read ? counters_.bytes_read : counters_.bytes_written) += moved;
  if (moved == request.bytes) {
    transfer.done_bytes += moved;
    return end_piece(piece);
  }

  ++counters_.short_transfers;
  // The rest starts on the grid: 5000 bytes moved on a grid of 4096 are 4096 done and 904 to be moved again.
  const std::uint64_t kept = round_down(moved, transfer.file->grid().offset_bytes);
  if (kept > 0) {
    transfer.done_bytes += kept;
    piece.tries = 0;
    request.offset += kept;
    request.bytes -= static_cast<std::uint32_t>(kept);
    request.buffer = static_cast<std::byte*>(request.buffer) + kept;
    return transfer.status.ok() ? ready_.push(request) : end_piece(piece);
  }
  if (read) {
    const Result<std::uint64_t> size_bytes = transfer.file->size();
    if (moved == 0 || !size_bytes.ok() || *size_bytes <= request.offset + moved) {
      fail(transfer,
           Status(Code::kDataLoss,
                  fmt::format("{}: truncated, the file has {} bytes", describe(request, *transfer.file),
                              size_bytes.ok() ? *size_bytes : request.offset + moved)));
      return end_piece(piece);
    }
  }
  retry(piece, EIO);
}

void Queue::retry(Piece& piece, int error) {
  Transfer& transfer = *piece.transfer;
  if (++piece.tries >= kMaxTries) {
    fail(transfer, status_from_errno(error, fmt::format("{}, tried {} times",
                                                        describe(piece.request, *transfer.file), kMaxTries)));
  }
  if (!transfer.status.ok()) return end_piece(piece);
  ++counters_.retries;
  if (error == EINTR) return ready_.push(piece.request);
  piece.due_ns = backend_.now_ns() + std::min(kPauseStepNs * piece.tries, kPauseMostNs);
  paused_.push(piece.request);
}

void Queue::end_piece(Piece& piece) {
  Transfer& transfer = *piece.transfer;
  --lanes_[transfer.drive].pieces;
  --transfer.pieces_;
  free_.push(piece.request);
  complete_if_finished(transfer);
}

void Queue::fail(Transfer& transfer, Status status) {
  if (transfer.status.ok()) transfer.status = std::move(status);
  if (!transfer.cutting_) return;
  transfer.cutting_ = false;
  lanes_[transfer.drive].waiting[static_cast<std::size_t>(transfer.priority)].remove(transfer);
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
