#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::bench {

/// Memory on huge pages where the system grants them, touched in parallel before it is given out: first touch
/// costs more than any kernel here. Kept for the process's life, so every benchmark works on the same pages.
class Arena {
 public:
  /// Requires: bytes is a multiple of 2 MiB.
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::uint8_t* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::uint8_t* data_;
  std::size_t bytes_;
};

/// Share of this process's anonymous memory that lies on huge pages.
double huge_page_share();

}  // namespace sluice::bench
