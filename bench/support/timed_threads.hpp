#pragma once

#include <cstddef>
#include <functional>

namespace sluice::bench {

/// Calls `work` once on each of `threads` threads, with the thread's index; one thread is the caller's.
/// Returns: seconds from the first one's start to the last one's end, the making of threads left out.
double seconds_of(const std::function<void(std::size_t thread)>& work, std::size_t threads);

}  // namespace sluice::bench
