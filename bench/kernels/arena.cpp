#include "arena.hpp"

#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace sluice::bench {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

Arena::Arena(std::size_t bytes) : bytes_(bytes) {
  void* memory =
      mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  data_ = static_cast<std::uint8_t*>(memory) + (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  madvise(data_, bytes, MADV_HUGEPAGE);

  const std::size_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> toucher;
  for (std::size_t t = 0; t < threads; ++t) {
    toucher.emplace_back([=, this] {
      const std::size_t begin = bytes_ / threads * t,
                        end = t + 1 == threads ? bytes_ : bytes_ / threads * (t + 1);
      std::memset(data_ + begin, 0, end - begin);
    });
  }
  for (std::thread& thread : toucher) thread.join();
}

Arena::~Arena() { munmap(data_, bytes_); }

double huge_page_share() {
  std::ifstream smaps("/proc/self/smaps_rollup");
  double anonymous = 0, huge = 0;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::string name;
    double kib = 0;
    words >> name >> kib;
    if (name == "Anonymous:") anonymous = kib;
    if (name == "AnonHugePages:") huge = kib;
  }
  return anonymous > 0 ? huge / anonymous : 0;
}

}  // namespace sluice::bench
