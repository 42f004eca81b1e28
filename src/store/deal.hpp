#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::store {

/// Deals `count` things out by weight, so that after each of them every drive has had its share of those dealt
/// so far to within one; equal weights take turns.
/// Shape: one weight a drive, or none: all the same. Requires: at least one drive, weights finite and > 0.
/// Returns: the drive of each.
/// Source: Baruah, Cohen, Plaxton, Varvel 1996 (Pfair): of those behind their share the one whose next is due
/// first.
std::vector<std::uint32_t> deal(std::uint64_t count, std::uint32_t drives, std::span<const double> weights);

}  // namespace sluice::store
