#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace sluice::fuzz {

using Input = std::vector<std::uint8_t>;

inline constexpr std::size_t kInputBytesMax = std::size_t{1} << 20;

/// An input of `corpus` (not empty) changed in a few places: bits, bytes, lengths, pieces of other inputs,
/// and numbers, binary and written out, that break arithmetic. At most kInputBytesMax; equal states of
/// `random` give equal inputs.
Input mutate(const std::vector<Input>& corpus, std::mt19937_64& random);

}  // namespace sluice::fuzz
