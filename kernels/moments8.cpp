#include "kernels/moments8.hpp"

#include <algorithm>

#include "kernels/float_environment.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moments8.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/moments8-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

template <Moment8 kKind>
void decode_moments(float* target, const std::uint8_t* codes, const float* scales, std::size_t elements) {
  for (std::size_t begin = 0; begin < elements; begin += kGranuleElements) {
    decode_granule<kKind>(target + begin, codes + begin, scales[begin / kGranuleElements],
                          std::min(kGranuleElements, elements - begin));
  }
}

template <Moment8 kKind>
void encode_moments(std::uint8_t* codes, float* scales, const float* source, std::size_t elements) {
  for (std::size_t begin = 0; begin < elements; begin += kGranuleElements) {
    const std::size_t count = std::min(kGranuleElements, elements - begin);
    HWY_ALIGN float granule[kGranuleElements];
    convert<SettledFormat, F32Format>(granule, source + begin, count);
    scales[begin / kGranuleElements] = encode_granule<kKind>(codes + begin, granule, count);
  }
}

void DecodeMoments8(float* target, const std::uint8_t* codes, const float* scales, std::size_t elements,
                    Moment8 kind) {
  (kind == Moment8::kSigned ? decode_moments<Moment8::kSigned>
                            : decode_moments<Moment8::kUnsigned>)(target, codes, scales, elements);
}

void EncodeMoments8(std::uint8_t* codes, float* scales, const float* source, std::size_t elements,
                    Moment8 kind) {
  (kind == Moment8::kSigned ? encode_moments<Moment8::kSigned>
                            : encode_moments<Moment8::kUnsigned>)(codes, scales, source, elements);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(DecodeMoments8);
HWY_EXPORT(EncodeMoments8);

void decode_moments8(float* target, const std::uint8_t* codes, const float* scales, std::size_t elements,
                     Moment8 kind) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(DecodeMoments8)(target, codes, scales, elements, kind);
}

void encode_moments8(std::uint8_t* codes, float* scales, const float* source, std::size_t elements,
                     Moment8 kind) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(EncodeMoments8)(codes, scales, source, elements, kind);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
