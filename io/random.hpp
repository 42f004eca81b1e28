#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::io {

/// Fills `target` from the kernel's generator: for names that must not collide, not for values.
void fill_random(std::span<std::byte> target);
std::uint64_t random_u64();

}  // namespace sluice::io
