#include "support/timed_threads.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

namespace sluice::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Span {
  Clock::time_point start, end;
};

Span timed(const std::function<void(std::size_t)>& work, std::size_t thread) {
  Span span{Clock::now(), {}};
  work(thread);
  span.end = Clock::now();
  return span;
}

}  // namespace

double seconds_of(const std::function<void(std::size_t)>& work, std::size_t threads) {
  std::barrier start_line(static_cast<std::ptrdiff_t>(threads));
  std::vector<Span> spans(threads);
  std::vector<std::thread> others;
  for (std::size_t thread = 1; thread < threads; ++thread) {
    others.emplace_back([&, thread] {
      start_line.arrive_and_wait();
      spans[thread] = timed(work, thread);
    });
  }
  start_line.arrive_and_wait();
  spans[0] = timed(work, 0);
  for (std::thread& other : others) other.join();
  const auto first = std::ranges::min_element(spans, {}, &Span::start);
  const auto last = std::ranges::max_element(spans, {}, &Span::end);
  return std::chrono::duration<double>(last->end - first->start).count();
}

}  // namespace sluice::bench
