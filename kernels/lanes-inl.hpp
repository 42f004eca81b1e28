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

inline constexpr std::size_t kLanesMax = hn::MaxLanes(F32());

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

struct F32Format {
  using Element = float;
  static HWY_INLINE Floats load(const float* source) { return hn::LoadU(F32(), source); }
  static HWY_INLINE void store(float* target, Floats x) { hn::StoreU(x, F32(), target); }
};

/// As a moment is stored: nothing denormal, and every NaN the same.
HWY_INLINE Floats settled(Floats moment) {
  const auto tiny = hn::Lt(hn::Abs(moment), hn::Set(F32(), FLT_MIN));
  const Words kept = nan_or(moment, word(0x7FC00000), bits_of(moment));
  return hn::IfThenZeroElse(tiny, floats_of(kept));
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
  static HWY_INLINE void store(std::uint16_t* target, Floats x) {
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
    store_halves(target, hn::Or(nan_or(x, nan, half), sign));
  }
};

/// The planes of bf16_split on one vector. An overflow is a finite master whose weight is Inf.
struct Bf16Split {
  static HWY_INLINE Floats load(const std::uint16_t* weight, const std::int16_t* residual) {
    const auto low = hn::PromoteTo(I32(), hn::LoadU(I16(), residual));
    return floats_of(hn::Add(hn::ShiftLeft<16>(load_halves(weight)), hn::BitCast(U32(), low)));
  }
  static HWY_INLINE void store(std::uint16_t* weight, std::int16_t* residual, Floats x) {
    const Words bits = nan_or(x, word(0x7FC00000), bits_of(x));
    store_halves(weight, hn::ShiftRight<16>(hn::Add(bits, word(0x8000))));
    // bits - (weight << 16) modulo 2^16 is the low half of bits.
    hn::StoreU(hn::BitCast(I16(), hn::TruncateTo(U16(), bits)), I16(), residual);
  }
  static HWY_INLINE hn::Mask<F32> overflows(Floats x) {
    const Floats magnitude = hn::Abs(x);
    return hn::And(hn::Ge(magnitude, floats_of(word(0x7F7F8000))),
                   hn::Lt(magnitude, floats_of(word(0x7F800000))));
  }
};

/// A copy of fewer than a vector's elements, padded with zeros, for a whole vector to work on.
template <class T>
struct Tail {
  HWY_ALIGN T lanes[kLanesMax] = {};

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
