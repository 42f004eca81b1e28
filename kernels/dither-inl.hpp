// The random bits of stochastic rounding, once per target: include inside a foreach_target source only.
#if defined(SLUICE_KERNELS_DITHER_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_DITHER_INL_HPP_
#undef SLUICE_KERNELS_DITHER_INL_HPP_
#else
#define SLUICE_KERNELS_DITHER_INL_HPP_
#endif

#include "kernels/lanes-inl.hpp"
#include "kernels/update.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

/// The 32 random bits of each element of a run. For the element `index` of its parameter:
///   z = key + (index >> 32) * 0x9E3779B97F4A7C15, then the finalizer of splitmix64: z ^= z >> 30,
///   z *= 0xBF58476D1CE4E5B9, z ^= z >> 27, z *= 0x94D049BB133111EB, z ^= z >> 31;
///   x = low half of index ^ low half of z; x ^= x >> 17, x *= 0xED5AD4BB, x += high half of z; x ^= x >> 11,
///   x *= 0xAC4C1B51; x ^= x >> 15, x *= 0x31848BAB; x ^= x >> 14
/// modulo 2^64 and 2^32. Over 2^32 indices x takes every value once, so that its halves are uniform to the last bit.
/// Requires: first_element >> 32 is that of all elements of the run.
/// Source: the rounds of C. Wellons, "Prospecting for hash functions" (triple32), with the key put in.
class DitherLanes {
 public:
  explicit HWY_INLINE DitherLanes(const Dither& dither) {
    std::uint64_t z = dither.key + (dither.first_element >> 32) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    low_key_ = static_cast<std::uint32_t>(z);
    high_key_ = static_cast<std::uint32_t>(z >> 32);
    first_ = static_cast<std::uint32_t>(dither.first_element);
  }

  /// Of the vector that starts at element i of the run.
  HWY_INLINE Words at(std::size_t i) const {
    // Lane numbers from 0 are a constant; from another number on Highway before 1.1 makes them through memory, which takes
    // longer than all the rest.
    const Words lanes = hn::Iota(U32(), 0);
    Words x = hn::Xor(hn::Add(lanes, word(first_ + static_cast<std::uint32_t>(i))), word(low_key_));
    x = hn::Add(hn::Mul(hn::Xor(x, hn::ShiftRight<17>(x)), word(0xED5AD4BB)), word(high_key_));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<11>(x)), word(0xAC4C1B51));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), word(0x31848BAB));
    return hn::Xor(x, hn::ShiftRight<14>(x));
  }

 private:
  std::uint32_t low_key_, high_key_, first_;
};

/// Stores a pair of settled moments as bf16: (bits + the low half of `random`) >> 16. What bf16 holds, Inf and a canonical NaN
/// among it, stays, for the sum does not carry into the upper half. From the largest finite bf16 on nothing is added: no
/// finite moment becomes Inf, from which none comes back.
HWY_INLINE void store_dithered(std::uint16_t* target, Floats low, Floats high, Words random_low,
                               Words random_high) {
  const auto dithered = [](Floats x, Words random) HWY_ATTR {
    const auto has_next = hn::RebindMask(U32(), hn::Lt(hn::Abs(x), floats_of(word(0x7F7F0000))));
    return hn::Add(bits_of(x), hn::IfThenElseZero(has_next, hn::And(random, word(0xFFFF))));
  };
  store_high_halves(target, dithered(low, random_low), dithered(high, random_high));
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
