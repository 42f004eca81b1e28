#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::trainer {

/// XXH3-64, seed 0.
std::uint64_t xxh3(std::span<const std::byte> bytes);

}  // namespace sluice::trainer
