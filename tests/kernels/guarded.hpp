#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace sluice::kernels {

/// An array that ends `gap` elements before a page that cannot be touched, with poison all around it: a write
/// beyond the ends shows in intact(), a read far beyond the end stops the test. Its start is as unaligned as
/// its length.
template <class T>
class Guarded {
 public:
  explicit Guarded(const std::vector<T>& values, std::size_t gap = 0) : elements_(values.size()) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (elements_ + gap) * sizeof(T) + kPoisonBytes;
    room_bytes_ = (used + page - 1) / page * page;
    void* memory =
        mmap(nullptr, room_bytes_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mapped_bytes_ = room_bytes_ + page;
    room_ = static_cast<std::uint8_t*>(memory);
    mprotect(room_ + room_bytes_, page, PROT_NONE);
    std::memset(room_, kPoison, room_bytes_);
    begin_ = room_ + room_bytes_ - (elements_ + gap) * sizeof(T);
    if (elements_ != 0) std::memcpy(begin_, values.data(), elements_ * sizeof(T));
  }
  ~Guarded() { munmap(room_, mapped_bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return reinterpret_cast<T*>(begin_); }
  std::vector<T> values() const {
    std::vector<T> copy(elements_);
    if (elements_ != 0) std::memcpy(copy.data(), begin_, elements_ * sizeof(T));
    return copy;
  }

  /// Whether every byte around the array is still poison.
  bool intact() const {
    const std::uint8_t* end = begin_ + elements_ * sizeof(T);
    for (const std::uint8_t* byte = room_; byte != begin_; ++byte) {
      if (*byte != kPoison) return false;
    }
    for (const std::uint8_t* byte = end; byte != room_ + room_bytes_; ++byte) {
      if (*byte != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr std::uint8_t kPoison = 0xA5;
  static constexpr std::size_t kPoisonBytes = 256;
  std::size_t elements_;
  std::size_t room_bytes_;
  std::size_t mapped_bytes_;
  std::uint8_t* room_;
  std::uint8_t* begin_;
};

}  // namespace sluice::kernels
