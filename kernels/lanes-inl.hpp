// The element formats on one vector of floats, once per target: include inside a foreach_target source only.
#if defined(SLUICE_KERNELS_LANES_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_LANES_INL_HPP_
#undef SLUICE_KERNELS_LANES_INL_HPP_
#else
#define SLUICE_KERNELS_LANES_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using I16 = hn::Rebind<std::int16_t, F32>;
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;

inline constexpr std::size_t kPairLanesMax = 2 * hn::MaxLanes(F32());

// Where vectors have 64 bytes, and the intrinsics of AVX-512 stand for what Highway has no name for.
#undef SLUICE_KERNELS_AVX512
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define SLUICE_KERNELS_AVX512 1
#endif

/// In every lane. Numbers are kept as floats and spread where they are used, since a vector of unknown size (SVE) cannot
/// be a member; out of a loop the compiler takes it by itself.
HWY_INLINE Floats all(float x) { return hn::Set(F32(), x); }
HWY_INLINE Words word(std::uint32_t bits) { return hn::Set(U32(), bits); }
HWY_INLINE Words bits_of(Floats x) { return hn::BitCast(U32(), x); }
HWY_INLINE Floats floats_of(Words bits) { return hn::BitCast(F32(), bits); }
HWY_INLINE Words nan_or(Floats x, Words if_nan, Words otherwise) {
  return hn::IfThenElse(hn::RebindMask(U32(), hn::IsNaN(x)), if_nan, otherwise);
}

HWY_INLINE Words load_halves(const std::uint16_t* source) {
  return hn::PromoteTo(U32(), hn::LoadU(U16(), source));
}
HWY_INLINE void store_halves(std::uint16_t* target, Words low_halves) {
  hn::StoreU(hn::TruncateTo(U16(), low_halves), U16(), target);
}

// Loops work on pairs of vectors, `low` holding the first elements: what a plane of 16-bit values has of them is one
// vector, for which a permutation of two is less work than to widen or narrow each.

/// The number of elements in a pair.
HWY_INLINE std::size_t pair_lanes() { return 2 * hn::Lanes(F32()); }

#if HWY_TARGET != HWY_SCALAR
using Halves = hn::Repartition<std::uint16_t, F32>;
#endif

/// Stores the low halves of a pair's words.
HWY_INLINE void store_low_halves(std::uint16_t* target, Words low, Words high) {
#if HWY_TARGET == HWY_SCALAR
  store_halves(target, low);
  store_halves(target + 1, high);
#else
  const Halves halves;
  hn::StoreU(hn::ConcatEven(halves, hn::BitCast(halves, high), hn::BitCast(halves, low)), halves, target);
#endif
}

/// Stores the high halves of a pair's words.
HWY_INLINE void store_high_halves(std::uint16_t* target, Words low, Words high) {
#if HWY_TARGET == HWY_SCALAR
  store_low_halves(target, hn::ShiftRight<16>(low), hn::ShiftRight<16>(high));
#else
  const Halves halves;
  hn::StoreU(hn::ConcatOdd(halves, hn::BitCast(halves, high), hn::BitCast(halves, low)), halves, target);
#endif
}

#ifdef SLUICE_KERNELS_AVX512
/// Which of 64 halves make the words of a pair: half i the low, half 32 + i the high half of word i.
alignas(64) inline constexpr std::uint16_t kZipped[2][32] = {
    {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
    {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
     24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
#endif

/// Loads halves as the high halves of a pair's words, the low ones 0.
HWY_INLINE void load_high_halves(const std::uint16_t* source, Words& low, Words& high) {
#ifdef SLUICE_KERNELS_AVX512
  constexpr __mmask32 kHigh = 0xAAAAAAAA;
  const __m512i halves = hn::LoadU(Halves(), source).raw;
  low = Words{_mm512_maskz_permutexvar_epi16(kHigh, hn::Load(Halves(), kZipped[0]).raw, halves)};
  high = Words{_mm512_maskz_permutexvar_epi16(kHigh, hn::Load(Halves(), kZipped[1]).raw, halves)};
#else
  low = hn::ShiftLeft<16>(load_halves(source));
  high = hn::ShiftLeft<16>(load_halves(source + hn::Lanes(F32())));
#endif
}

struct F32Format {
  using Element = float;
  static HWY_INLINE Floats load(const float* source) { return hn::LoadU(F32(), source); }
  static HWY_INLINE void store(float* target, Floats x) { hn::StoreU(x, F32(), target); }
  static HWY_INLINE void load(const float* source, Floats& low, Floats& high) {
    low = load(source);
    high = load(source + hn::Lanes(F32()));
  }
  static HWY_INLINE void store(float* target, Floats low, Floats high) {
    store(target, low);
    store(target + hn::Lanes(F32()), high);
  }
};

/// Every NaN the same.
HWY_INLINE Floats canonical(Floats x) { return floats_of(nan_or(x, word(0x7FC00000), bits_of(x))); }

/// As a moment is stored: nothing denormal, and every NaN the same.
HWY_INLINE Floats settled(Floats moment) {
  const auto tiny = hn::Lt(hn::Abs(moment), hn::Set(F32(), FLT_MIN));
  return hn::IfThenZeroElse(tiny, canonical(moment));
}

/// Whether all are normal, which NaN, 0 and what is denormal are not.
template <class... More>
HWY_INLINE bool all_normal(Floats first, More... more) {
  const auto is_normal = [](Floats x) HWY_ATTR { return hn::Ge(hn::Abs(x), all(FLT_MIN)); };
  auto normal = is_normal(first);
  ((normal = hn::And(normal, is_normal(more))), ...);
  return hn::AllTrue(F32(), normal);
}

/// settled() of each moment in place. A step's moments are hardly ever anything else already, which one test of all shows.
template <class... Moments>
HWY_INLINE void settle(Moments&... moments) {
#ifdef SLUICE_KERNELS_AVX512
  // Quiet NaN, -0, denormal, signalling NaN; +0 stays as it is.
  constexpr int kUnsettled = 0x01 | 0x04 | 0x20 | 0x80;
  if (HWY_LIKELY((_mm512_fpclass_ps_mask(moments.raw, kUnsettled) | ...) == 0)) return;
#else
  if (HWY_LIKELY(all_normal(moments...))) return;
#endif
  ((moments = settled(moments)), ...);
}

struct SettledFormat {
  using Element = float;
  static HWY_INLINE void store(float* target, Floats x) { F32Format::store(target, settled(x)); }
};

struct Bf16Format {
  using Element = std::uint16_t;
  static HWY_INLINE Floats load(const std::uint16_t* source) {
    return floats_of(hn::ShiftLeft<16>(load_halves(source)));
  }
  static HWY_INLINE void load(const std::uint16_t* source, Floats& low, Floats& high) {
    Words low_bits, high_bits;
    load_high_halves(source, low_bits, high_bits);
    low = floats_of(low_bits);
    high = floats_of(high_bits);
  }
  static HWY_INLINE void store(std::uint16_t* target, Floats x) {
    const Words bits = bits_of(x);
    const Words odd = hn::And(hn::ShiftRight<16>(bits), word(1));
    const Words rounded = hn::Add(bits, hn::Add(odd, word(0x7FFF)));
    const Words quiet = hn::Or(bits, word(0x00400000));
    store_halves(target, hn::ShiftRight<16>(nan_or(x, quiet, rounded)));
  }
};

// Integer arithmetic and one exact float operation, so that no target's conversion instruction can differ.
struct F16Format {
  using Element = std::uint16_t;
  static HWY_INLINE Floats load(const std::uint16_t* source) {
    const Words half = load_halves(source);
    const Words sign = hn::ShiftLeft<16>(hn::And(half, word(0x8000)));
    const Words magnitude = hn::ShiftLeft<13>(hn::And(half, word(0x7FFF)));
    // Read with a float's exponent bias the value is 2^-112 of what it should be; denormals come out right
    // too.
    const Words finite = bits_of(hn::Mul(floats_of(magnitude), hn::Set(F32(), 0x1p112f)));
    const Words special = hn::Or(magnitude, word(0x7F800000));
    const auto is_special = hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x0F7FFFFF));
    const Words wide = hn::IfThenElse(hn::RebindMask(U32(), is_special), special, finite);
    const Floats x = floats_of(hn::Or(wide, sign));
    return floats_of(nan_or(x, hn::Or(bits_of(x), word(0x00400000)), bits_of(x)));
  }
  static HWY_INLINE Words rounded(Floats x) {
    const Words sign = hn::ShiftRight<16>(hn::And(bits_of(x), word(0x80000000)));
    const Floats magnitude = hn::Abs(x);
    const Words bits = bits_of(magnitude);
    const Words odd = hn::And(hn::ShiftRight<13>(bits), word(1));
    // 112 << 23 less: the exponent rebiased from 127 to 15. A carry out of the mantissa rounds up to Inf by
    // itself.
    const Words normal =
        hn::ShiftRight<13>(hn::Add(hn::Sub(bits, word(112u << 23)), hn::Add(odd, word(0xFFF))));
    // Below 2^-14 adding 0.5 lines the last bit of a float up with 2^-24, the step of half denormals, and
    // rounds.
    const Words denormal = hn::Sub(bits_of(hn::Add(magnitude, hn::Set(F32(), 0.5f))), word(0x3F000000));
    const Words nan = hn::Or(hn::And(hn::ShiftRight<13>(bits), word(0x3FF)), word(0x7E00));
    const auto is_small = hn::RebindMask(U32(), hn::Lt(magnitude, hn::Set(F32(), 0x1p-14f)));
    const auto is_large = hn::RebindMask(U32(), hn::Ge(magnitude, hn::Set(F32(), 0x1p16f)));
    Words half = hn::IfThenElse(is_small, denormal, normal);
    half = hn::IfThenElse(is_large, word(0x7C00), half);
    return hn::Or(nan_or(x, nan, half), sign);
  }
  static HWY_INLINE void store(std::uint16_t* target, Floats x) { store_halves(target, rounded(x)); }
  static HWY_INLINE void store(std::uint16_t* target, Floats low, Floats high) {
    store_low_halves(target, rounded(low), rounded(high));
  }
};

/// As masters of a pair are stored: every NaN the same. Returns how many of them are finite, but of a magnitude from
/// Weights::kOverflow on, which may be Inf.
template <class Weights>
HWY_INLINE std::size_t settle_masters(Floats& low, Floats& high) {
  const Floats overflow = all(Weights::kOverflow);
  std::size_t overflows = 0;
  if constexpr (Weights::kOverflow != std::numeric_limits<float>::infinity()) {
    // One test for NaN too; neither is to be expected.
    const auto ordinary = [&](Floats x) HWY_ATTR { return hn::Lt(hn::Abs(x), overflow); };
    if (HWY_LIKELY(hn::AllTrue(F32(), hn::And(ordinary(low), ordinary(high))))) return 0;
    const auto count = [&](Floats x) HWY_ATTR {
      const auto finite = hn::Lt(hn::Abs(x), floats_of(word(0x7F800000)));
      return hn::CountTrue(F32(), hn::And(hn::Ge(hn::Abs(x), overflow), finite));
    };
    overflows = count(low) + count(high);
  }
  low = canonical(low);
  high = canonical(high);
  return overflows;
}

/// The planes of bf16_split on a pair of settled masters.
struct Bf16Split {
  /// From here on a finite master's weight is Inf.
  static constexpr float kOverflow = 0x1.FFp127f;

  static HWY_INLINE void load(const std::uint16_t* weight, const std::int16_t* residual, Floats& low,
                              Floats& high) {
#ifdef SLUICE_KERNELS_AVX512
    // A negative residual borrows from the half above it.
    const Halves halves;
    const auto low_halves = hn::LoadU(hn::RebindToSigned<Halves>(), residual);
    const auto borrow = hn::BitCast(halves, hn::ShiftRight<15>(low_halves));
    const __m512i high_halves = hn::Add(hn::LoadU(halves, weight), borrow).raw;
    const auto zip = [&](const std::uint16_t* order) HWY_ATTR {
      return floats_of(
          Words{_mm512_permutex2var_epi16(low_halves.raw, hn::Load(halves, order).raw, high_halves)});
    };
    low = zip(kZipped[0]);
    high = zip(kZipped[1]);
#else
    const auto join = [](const std::uint16_t* weights, const std::int16_t* residuals) HWY_ATTR {
      const auto low_halves = hn::PromoteTo(I32(), hn::LoadU(I16(), residuals));
      return floats_of(hn::Add(hn::ShiftLeft<16>(load_halves(weights)), hn::BitCast(U32(), low_halves)));
    };
    low = join(weight, residual);
    high = join(weight + hn::Lanes(F32()), residual + hn::Lanes(F32()));
#endif
  }
  static HWY_INLINE void store_weight(std::uint16_t* weight, Floats low, Floats high) {
    store_high_halves(weight, hn::Add(bits_of(low), word(0x8000)), hn::Add(bits_of(high), word(0x8000)));
  }
  static HWY_INLINE void store_residual(std::int16_t* residual, Floats low, Floats high) {
    // bits - (weight << 16) modulo 2^16 is the low half of bits.
    store_low_halves(reinterpret_cast<std::uint16_t*>(residual), bits_of(low), bits_of(high));
  }
};

/// A copy of fewer than a pair's elements, padded with zeros, for a whole vector or pair to work on.
template <class T>
struct Tail {
  HWY_ALIGN T lanes[kPairLanesMax] = {};

  Tail() = default;
  Tail(const T* source, std::size_t count) { std::memcpy(lanes, source, count * sizeof(T)); }
  void copy_to(T* target, std::size_t count) const { std::memcpy(target, lanes, count * sizeof(T)); }
};

/// target[i] = source[i] from one format to another; the last elements go through the same vector code.
template <class Target, class Source>
HWY_INLINE void convert(typename Target::Element* target, const typename Source::Element* source,
                        std::size_t elements) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) Target::store(target + i, Source::load(source + i));
  if (const std::size_t rest = elements - i; rest != 0) {
    Tail<typename Target::Element> rounded;
    Target::store(rounded.lanes, Source::load(Tail<typename Source::Element>(source + i, rest).lanes));
    rounded.copy_to(target + i, rest);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
