// Granules of 8-bit moments, once per target: include inside a foreach_target source only.
#if defined(SLUICE_KERNELS_MOMENTS8_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_MOMENTS8_INL_HPP_
#undef SLUICE_KERNELS_MOMENTS8_INL_HPP_
#else
#define SLUICE_KERNELS_MOMENTS8_INL_HPP_
#endif

#include <cfloat>
#include <cstring>

#include "kernels/constants.hpp"
#include "kernels/lanes-inl.hpp"
#include "kernels/moments8.hpp"
#include "kernels/moments8_code.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

using U8 = hn::Rebind<std::uint8_t, F32>;

/// One kind of code on vectors: magnitudes as code words, the sign put on and taken off.
template <Moment8 kKind>
struct Moment8Lanes {
  static constexpr const Moment8Lines& kLines = kKind == Moment8::kSigned ? kSignedLines : kUnsignedLines;

  static HWY_INLINE Floats fraction(Words code) {
    const Floats middle = hn::Add(hn::ConvertTo(F32(), hn::BitCast(I32(), code)), hn::Set(F32(), 0.5f));
    Floats fraction = hn::Zero(F32());
    for (std::size_t d = 0; d < kLines.decades; ++d) {
      fraction = hn::Max(
          fraction, hn::MulSub(middle, hn::Set(F32(), kLines.slope[d]), hn::Set(F32(), kLines.offset[d])));
    }
    return fraction;
  }

  static HWY_INLINE Floats decode(const std::uint8_t* codes, Floats scale) {
    const Words code = hn::PromoteTo(U32(), hn::LoadU(U8(), codes));
    if constexpr (kKind == Moment8::kUnsigned) return hn::Mul(fraction(code), scale);
    const Floats magnitude = hn::Mul(fraction(hn::And(code, word(0x7F))), scale);
    const Words sign = hn::ShiftLeft<24>(hn::And(code, word(0x80)));
    return floats_of(hn::Or(bits_of(magnitude), sign));
  }

  /// Requires: x finite and |x| <= scale, or Inf, which has the largest code; inverse = 1 / scale. `deep`: codes of this scale may stand for denormals.
  static HWY_INLINE Words encode(Floats x, Floats scale, Floats inverse, bool deep) {
    const Floats magnitude = hn::Abs(x);
    const Floats part = hn::Mul(magnitude, inverse);
    Floats place = hn::Set(F32(), static_cast<float>(kLines.largest) + 0.5f);
    for (std::size_t d = 0; d < kLines.decades; ++d) {
      place =
          hn::Min(place, hn::MulAdd(part, hn::Set(F32(), kLines.gain[d]), hn::Set(F32(), kLines.base[d])));
    }
    Words code = hn::BitCast(U32(), hn::ConvertTo(I32(), place));
    if constexpr (kKind == Moment8::kUnsigned) {
      const auto some = hn::RebindMask(U32(), hn::Gt(magnitude, hn::Zero(F32())));
      code = hn::Max(code, hn::IfThenElseZero(some, word(1)));
    }
    if (deep) {
      const auto flushed = hn::Lt(hn::Mul(fraction(code), scale), hn::Set(F32(), FLT_MIN));
      code = hn::IfThenZeroElse(hn::RebindMask(U32(), flushed), code);
    }
    if constexpr (kKind == Moment8::kUnsigned) return code;
    const Words sign = hn::And(hn::ShiftRight<24>(bits_of(x)), word(0x80));
    return hn::Or(code, hn::IfThenZeroElse(hn::Eq(code, word(0)), sign));
  }
};

HWY_INLINE hn::Vec<I32> magnitude_bits(Floats x) {
  return hn::BitCast(I32(), hn::And(bits_of(x), word(0x7FFFFFFF)));
}

/// The bits of the largest magnitude; above those of Inf if there is a NaN. Shape: values [count].
HWY_INLINE std::uint32_t largest_bits(const float* values, std::size_t count) {
  const std::size_t lanes = hn::Lanes(F32());
  auto largest = hn::Zero(I32());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    largest = hn::Max(largest, magnitude_bits(F32Format::load(values + i)));
  if (i != count) {
    largest = hn::Max(largest, magnitude_bits(F32Format::load(Tail<float>(values + i, count - i).lanes)));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(I32(), largest)));
}

/// Shape: target, codes [count], count <= 256.
template <Moment8 kKind>
HWY_INLINE void decode_granule(float* target, const std::uint8_t* codes, float scale, std::size_t count) {
  using Code = Moment8Lanes<kKind>;
  const std::size_t lanes = hn::Lanes(F32());
  const Floats scales = hn::Set(F32(), scale);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) F32Format::store(target + i, Code::decode(codes + i, scales));
  if (i != count) {
    Tail<float> decoded;
    F32Format::store(decoded.lanes, Code::decode(Tail<std::uint8_t>(codes + i, count - i).lanes, scales));
    decoded.copy_to(target + i, count - i);
  }
}

/// Returns: the scale. Shape: codes, source [count], count <= 256. Requires: no denormals.
template <Moment8 kKind>
HWY_INLINE float encode_granule(std::uint8_t* codes, const float* source, std::size_t count) {
  using Code = Moment8Lanes<kKind>;
  std::uint32_t bits = largest_bits(source, count);
  // Codes are found by the least of lines that rise, so that Inf has the largest beside any scale.
  if (kKind == Moment8::kUnsigned && bits == 0x7F800000) bits = 0x7F7FFFFF;
  if (bits >= 0x7F800000) {
    std::memset(codes, 0, count);
    const std::uint32_t nan = 0x7FC00000;
    float scale;
    std::memcpy(&scale, &nan, sizeof scale);
    return scale;
  }
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  const Floats scales = hn::Set(F32(), scale);
  const Floats inverse = hn::Set(F32(), scale > 0.0f ? 1.0f / scale : 0.0f);
  const bool deep = scale < Code::kLines.least_scale;
  const auto encode = [&](std::uint8_t* target, const float* values) HWY_ATTR {
    const Words code = Code::encode(F32Format::load(values), scales, inverse, deep);
    hn::StoreU(hn::TruncateTo(U8(), code), U8(), target);
  };
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) encode(codes + i, source + i);
  if (i != count) {
    Tail<std::uint8_t> encoded;
    encode(encoded.lanes, Tail<float>(source + i, count - i).lanes);
    encoded.copy_to(codes + i, count - i);
  }
  return scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
