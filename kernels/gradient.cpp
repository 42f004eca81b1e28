#include "kernels/gradient.hpp"

#include <cmath>

#include "kernels/constants.hpp"
#include "kernels/float_environment.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/lanes-inl.hpp"

#ifndef SLUICE_KERNELS_GRADIENT_ONCE_
#define SLUICE_KERNELS_GRADIENT_ONCE_
namespace sluice::kernels {

inline void put_in(NormDelta& norm, double granule_squares) {
  if (std::isfinite(granule_squares)) {
    norm.squares.add(granule_squares);
  } else {
    ++norm.nonfinite_granules;
  }
}

inline void take_out(NormDelta& norm, double granule_squares) {
  if (std::isfinite(granule_squares)) norm.squares.subtract(granule_squares);
}

}  // namespace sluice::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kSumLanes = 16;

/// Sum of squares of a whole granule. Squares of floats are exact in double, so a fused multiply-add and a
/// multiply and an add agree; each of the 16 lanes is summed in order, then halves onto halves.
HWY_INLINE double granule_squares(const float* granule) {
  const hn::ScalableTag<double> f64;
  const hn::Rebind<float, decltype(f64)> f32;
  const std::size_t step = hn::Lanes(f64) < kSumLanes ? hn::Lanes(f64) : kSumLanes;
  HWY_ALIGN double lanes[hn::MaxLanes(hn::ScalableTag<double>()) + kSumLanes];
  for (std::size_t first = 0; first < kSumLanes; first += step) {
    auto sum = hn::Zero(f64);
    for (std::size_t i = first; i < kGranuleElements; i += kSumLanes) {
      const auto x = hn::PromoteTo(f64, hn::LoadU(f32, granule + i));
      sum = hn::MulAdd(x, x, sum);
    }
    hn::StoreU(sum, f64, lanes + first);
  }
  for (std::size_t half = kSumLanes / 2; half != 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// The same for `elements` of any format from the first of a granule on, padded with zeros.
template <class Format>
HWY_INLINE double granule_squares_of(const typename Format::Element* granule, std::size_t elements) {
  HWY_ALIGN float padded[kGranuleElements];
  convert<F32Format, Format>(padded, granule, elements);
  for (std::size_t i = elements; i < kGranuleElements; ++i) padded[i] = 0.0f;
  return granule_squares(padded);
}

HWY_INLINE double granule_squares_of(const float* granule, std::size_t elements) {
  return elements == kGranuleElements ? granule_squares(granule)
                                      : granule_squares_of<F32Format>(granule, elements);
}

template <class Source>
HWY_INLINE void add_to(float* target, const typename Source::Element* source, std::size_t elements) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    F32Format::store(target + i, hn::Add(F32Format::load(target + i), Source::load(source + i)));
  }
  if (const std::size_t rest = elements - i; rest != 0) {
    Tail<float> sum(target + i, rest);
    const Tail<typename Source::Element> addend(source + i, rest);
    F32Format::store(sum.lanes, hn::Add(F32Format::load(sum.lanes), Source::load(addend.lanes)));
    sum.copy_to(target + i, rest);
  }
}

template <class Source>
void accumulate_from(float* target, const void* source_bytes, std::size_t elements, Accumulate accumulate,
                     NormDelta* norm) {
  const auto* source = static_cast<const typename Source::Element*>(source_bytes);
  for (std::size_t begin = 0; begin < elements; begin += kGranuleElements) {
    const std::size_t count = HWY_MIN(kGranuleElements, elements - begin);
    float* granule = target + begin;
    if (accumulate == Accumulate::kStore) {
      convert<F32Format, Source>(granule, source + begin, count);
    } else {
      if (norm != nullptr) take_out(*norm, granule_squares_of(granule, count));
      add_to<Source>(granule, source + begin, count);
    }
    if (norm != nullptr) put_in(*norm, granule_squares_of(granule, count));
  }
}

void AccumulateF32(float* target, const void* source, GradientDType source_type, std::size_t elements,
                   Accumulate accumulate, NormDelta* norm) {
  switch (source_type) {
    case GradientDType::kF32:
      return accumulate_from<F32Format>(target, source, elements, accumulate, norm);
    case GradientDType::kBF16:
      return accumulate_from<Bf16Format>(target, source, elements, accumulate, norm);
    case GradientDType::kF16:
      return accumulate_from<F16Format>(target, source, elements, accumulate, norm);
  }
}

template <class Source>
void store_bf16_from(std::uint16_t* target, const void* source_bytes, std::size_t elements, NormDelta* norm) {
  const auto* source = static_cast<const typename Source::Element*>(source_bytes);
  for (std::size_t begin = 0; begin < elements; begin += kGranuleElements) {
    const std::size_t count = HWY_MIN(kGranuleElements, elements - begin);
    convert<Bf16Format, Source>(target + begin, source + begin, count);
    if (norm != nullptr) put_in(*norm, granule_squares_of<Bf16Format>(target + begin, count));
  }
}

void StoreBf16(std::uint16_t* target, const void* source, GradientDType source_type, std::size_t elements,
               NormDelta* norm) {
  switch (source_type) {
    case GradientDType::kF32:
      return store_bf16_from<F32Format>(target, source, elements, norm);
    case GradientDType::kBF16:
      return store_bf16_from<Bf16Format>(target, source, elements, norm);
    case GradientDType::kF16:
      return store_bf16_from<F16Format>(target, source, elements, norm);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(AccumulateF32);
HWY_EXPORT(StoreBf16);

void accumulate_f32(float* target, const void* source, GradientDType source_type, std::size_t elements,
                    Accumulate accumulate, NormDelta* norm) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(AccumulateF32)(target, source, source_type, elements, accumulate, norm);
}

void store_bf16(std::uint16_t* target, const void* source, GradientDType source_type, std::size_t elements,
                NormDelta* norm) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(StoreBf16)(target, source, source_type, elements, norm);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
