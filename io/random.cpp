#include "io/random.hpp"

#include <sys/random.h>

#include <random>

namespace sluice::io {

void fill_random(std::span<std::byte> target) {
  // Up to 256 bytes come whole. Source: getrandom(2). Where a sandbox forbids the call, the library has other
  // ways.
  if (::getrandom(target.data(), target.size(), 0) == static_cast<ssize_t>(target.size())) return;
  std::random_device device;
  for (std::byte& byte : target) byte = static_cast<std::byte>(device());
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace sluice::io
