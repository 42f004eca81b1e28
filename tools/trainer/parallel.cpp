#include "trainer/parallel.hpp"

#include <omp.h>

#include <thread>

namespace sluice::trainer {

void set_threads(std::uint32_t count) {
  omp_set_num_threads(static_cast<int>(count == 0 ? std::thread::hardware_concurrency() : count));
}

std::size_t threads() { return static_cast<std::size_t>(omp_get_max_threads()); }

void for_each(std::size_t count, const std::function<void(std::size_t index, std::size_t thread)>& work) {
#pragma omp parallel for schedule(static)
  for (std::size_t index = 0; index < count; ++index) {
    work(index, static_cast<std::size_t>(omp_get_thread_num()));
  }
}

}  // namespace sluice::trainer
