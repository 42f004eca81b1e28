#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace sluice::trainer {

/// Spreads what the calling thread computes over `count` threads, itself included, until it ends or says
/// otherwise. 0: one a CPU. This is the program's own choice; the engine has its own threads.
void set_threads(std::uint32_t count);

/// What set_threads() has set; 1 before it, and inside for_each().
std::size_t threads();

/// Calls work(index, thread) for every index below `count`, a fixed part on each thread; thread < threads().
/// Requires: calls write different places; then the result does not depend on the number of threads.
/// Blocks: until all are done; waiting threads sleep.
void for_each(std::size_t count, const std::function<void(std::size_t index, std::size_t thread)>& work);

}  // namespace sluice::trainer
