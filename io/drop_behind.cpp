#include "io/drop_behind.hpp"

#include <algorithm>

namespace sluice::io {

DropBehind::Range DropBehind::Ring::pop() {
  const Range range = at(0);
  first = (first + 1) % kRanges;
  --count;
  return range;
}

void DropBehind::Ring::forget(int fd) {
  for (std::size_t left = count; left > 0; --left) {
    const Range range = pop();
    if (range.fd != fd) push(range);
  }
}

bool DropBehind::Ring::join(const Range& range) {
  if (count == 0) return false;
  Range& last = at(count - 1);
  if (last.fd != range.fd) return false;
  if (last.bytes == kToTheEnd && last.offset == 0) return true;  // the whole file
  if (last.bytes + range.bytes > kJoinedBytes) return false;
  if (last.offset + last.bytes != range.offset && range.offset + range.bytes != last.offset) return false;
  last.offset = std::min(last.offset, range.offset);
  last.bytes += range.bytes;
  return true;
}

void DropBehind::add_due(const Range& range) {
  if (due_.join(range)) return;
  if (!due_.full()) return due_.push(range);
  due_.forget(range.fd);
  if (due_.full()) due_.pop();  // as many files as ranges: the oldest keeps its pages until it is flushed
  due_.push({range.fd, 0, kToTheEnd});
}

void DropBehind::written(int fd, std::uint64_t offset, std::uint64_t bytes) {
  window_bytes_ += bytes;
  if (!window_.join({fd, offset, bytes})) {
    if (window_.count > 0) add_due(window_.at(window_.count - 1));  // grows no more: its writing begins
    if (window_.full()) leave_window();
    window_.push({fd, offset, bytes});
  }
  while (window_bytes_ > kWindowBytes && window_.count > 1) leave_window();
}

void DropBehind::leave_window() {
  const Range range = window_.pop();
  window_bytes_ -= range.bytes;
  add_due(range);
}

void DropBehind::flushed(int fd) {
  window_.forget(fd);
  window_bytes_ = 0;
  for (std::size_t i = 0; i < window_.count; ++i) window_bytes_ += window_.at(i).bytes;
  due_.forget(fd);
  add_due({fd, 0, kToTheEnd});
}

void DropBehind::next(Request& request) {
  const Range range = due_.pop();
  request.op = Op::kDropCache;
  request.fd = range.fd;
  request.offset = range.offset;
  request.bytes = static_cast<std::uint32_t>(range.bytes);  // at most a request's, or kJoinedBytes
  request.buffer = nullptr;
}

}  // namespace sluice::io
