#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace sluice::trainer {

/// Threads of everything computed here: this program's own choice, the library under it has its own threads.
/// Effect: on what the calling thread computes. 0: one a CPU.
void set_threads(std::uint32_t count);

std::size_t threads();

/// Calls work(index, thread) for every index below `count`, a fixed part on each thread; thread < threads().
/// Requires: calls write different places; then the result does not depend on the number of threads.
void for_each(std::size_t count, const std::function<void(std::size_t index, std::size_t thread)>& work);

}  // namespace sluice::trainer
