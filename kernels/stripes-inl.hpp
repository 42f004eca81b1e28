// XXH3's arithmetic on one target's vectors: include inside a foreach_target source only.
#if defined(SLUICE_KERNELS_STRIPES_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_STRIPES_INL_HPP_
#undef SLUICE_KERNELS_STRIPES_INL_HPP_
#else
#define SLUICE_KERNELS_STRIPES_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/stripes.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A stripe's key starts a word after the last one's.
inline constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

#if HWY_TARGET != HWY_SCALAR

/// A stripe's words, or as many as a vector holds.
using StripeWords = hn::CappedTag<std::uint64_t, 8>;
using StripeVector = hn::Vec<StripeWords>;
using StripeHalves = hn::Repartition<std::uint32_t, StripeWords>;

HWY_INLINE StripeVector words_at(const void* bytes, std::size_t offset) {
  return hn::LoadU(StripeWords(),
                   reinterpret_cast<const std::uint64_t*>(static_cast<const std::byte*>(bytes) + offset));
}

/// The product of each word's halves.
HWY_INLINE StripeVector half_product(StripeVector keyed) {
  const auto parts = hn::BitCast(StripeHalves(), keyed);
  return hn::MulEven(parts, hn::Shuffle2301(parts));
}

/// Sums from `word` on at the end of a block.
HWY_INLINE StripeVector scrambled(StripeVector sum, const std::uint8_t* secret, std::size_t word) {
  const StripeHalves halves;
  sum = hn::Xor(hn::Xor(sum, hn::ShiftRight<47>(sum)),
                words_at(secret, StripeSums::kScrambleOffset + word * kWordBytes));
  const auto prime = hn::Set(halves, 0x9E3779B1u);
  const auto parts = hn::BitCast(halves, sum);
  const auto high = hn::MulEven(hn::Shuffle2301(parts), prime);
  return hn::Add(hn::MulEven(parts, prime), hn::ShiftLeft<32>(high));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
