#pragma once

#include <cstdint>

#include "io/backend.hpp"

namespace sluice::io {

/// A first-in, first-out list of requests, linked through Request::next.
/// Invariant: `count` is the length from `first` to `last`; last->next is null.
struct RequestList {
  Request* first = nullptr;
  Request* last = nullptr;
  std::uint32_t count = 0;

  bool empty() const { return first == nullptr; }

  void push(Request& request) {
    request.next = nullptr;
    (last == nullptr ? first : last->next) = &request;
    last = &request;
    ++count;
  }

  /// Requires: not empty.
  Request& pop() {
    Request& request = *first;
    first = request.next;
    if (first == nullptr) last = nullptr;
    request.next = nullptr;
    --count;
    return request;
  }

  /// Empties the list. Returns: its first request, null when it was empty.
  Request* take() {
    Request* all = first;
    *this = {};
    return all;
  }
};

}  // namespace sluice::io
