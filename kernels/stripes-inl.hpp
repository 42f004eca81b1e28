// XXH3's stripes on one target's vectors, for loops that have them at hand: include inside a foreach_target source only.
#if defined(SLUICE_KERNELS_STRIPES_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_STRIPES_INL_HPP_
#undef SLUICE_KERNELS_STRIPES_INL_HPP_
#else
#define SLUICE_KERNELS_STRIPES_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/lanes-inl.hpp"
#include "kernels/tile_hash.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef SLUICE_KERNELS_FUSES_HASHES
// Where vectors hold a stripe the sums of a plane are one register.
#ifdef SLUICE_KERNELS_AVX512
#define SLUICE_KERNELS_FUSES_HASHES 1

using StripeWords = hn::CappedTag<std::uint64_t, 8>;
using StripeHalves = hn::Repartition<std::uint32_t, StripeWords>;

/// Adds kStripes stripes. Requires: sums.in_block is a multiple of kStripes, which 16 is a multiple of.
template <std::size_t kStripes>
HWY_INLINE void add_stripes(StripeSums& sums, const std::byte* source) {
  const StripeWords words;
  const StripeHalves halves;
  auto sum = hn::Load(words, sums.sums);
  for (std::size_t stripe = 0; stripe < kStripes; ++stripe) {
    const auto* data_at = reinterpret_cast<const std::uint64_t*>(source + stripe * StripeSums::kStripeBytes);
    const auto* secret_at = reinterpret_cast<const std::uint64_t*>(sums.secret + (sums.in_block + stripe) *
                                                                                     sizeof(std::uint64_t));
    const auto data = hn::LoadU(words, data_at);
    const auto keyed = hn::BitCast(halves, hn::Xor(data, hn::LoadU(words, secret_at)));
    const auto product = hn::MulEven(keyed, hn::Shuffle2301(keyed));
    sum = hn::Add(hn::Add(sum, hn::Shuffle01(data)), product);
  }
  sums.in_block += kStripes;
  if (sums.in_block == StripeSums::kBlockStripes) {
    sums.in_block = 0;
    const auto* secret_at = reinterpret_cast<const std::uint64_t*>(sums.secret + StripeSums::kScrambleOffset);
    sum = hn::Xor(hn::Xor(sum, hn::ShiftRight<47>(sum)), hn::LoadU(words, secret_at));
    const auto prime = hn::Set(halves, 0x9E3779B1u);
    const auto parts = hn::BitCast(halves, sum);
    const auto high = hn::MulEven(hn::Shuffle2301(parts), prime);
    sum = hn::Add(hn::MulEven(parts, prime), hn::ShiftLeft<32>(high));
  }
  hn::Store(sum, words, sums.sums);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
