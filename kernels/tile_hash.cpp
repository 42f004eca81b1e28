#include "kernels/tile_hash.hpp"

#include <bit>

#include "kernels/isa.hpp"
#include "kernels/tile_hash_targets.hpp"

namespace sluice::kernels {
namespace {

const HashTarget& target_in_use() {
#if defined(__x86_64__)
  switch (isa_in_use()) {
    case Isa::kAvx512:
      return kHashAvx512;
    case Isa::kAvx2:
      return kHashAvx2;
    default:
      return kHashBaseline;
  }
#else
  return kHashBaseline;
#endif
}

}  // namespace

std::uint64_t hash_bytes(const void* data, std::size_t bytes) { return target_in_use().hash(data, bytes); }

std::uint64_t plane_hash(const std::uint64_t* tile_hashes, std::size_t tiles) {
  static_assert(std::endian::native == std::endian::little, "the array is hashed as it lies in memory");
  return hash_bytes(tile_hashes, tiles * sizeof(std::uint64_t));
}

Hasher::Hasher() : target_(&target_in_use()) { target_->reset(state_); }

void Hasher::update(const void* data, std::size_t bytes) { target_->update(state_, data, bytes); }

bool Hasher::at_stripe(std::size_t stripes) const { return target_->at_stripe(state_, stripes); }

StripeSums Hasher::lend() {
  StripeSums sums;
  target_->lend(state_, sums);
  return sums;
}

void Hasher::take_back(const StripeSums& sums, std::size_t bytes) { target_->take_back(state_, sums, bytes); }

std::uint64_t Hasher::digest() const { return target_->digest(state_); }

}  // namespace sluice::kernels
