#include "kernels/convert.hpp"

#include "kernels/float_environment.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

void ConvertBf16ToF32(float* target, const std::uint16_t* source, std::size_t elements) {
  convert<F32Format, Bf16Format>(target, source, elements);
}
void ConvertF32ToBf16(std::uint16_t* target, const float* source, std::size_t elements) {
  convert<Bf16Format, F32Format>(target, source, elements);
}
void ConvertF16ToF32(float* target, const std::uint16_t* source, std::size_t elements) {
  convert<F32Format, F16Format>(target, source, elements);
}
void ConvertF32ToF16(std::uint16_t* target, const float* source, std::size_t elements) {
  convert<F16Format, F32Format>(target, source, elements);
}

void JoinBf16Split(float* master, const std::uint16_t* weight, const std::int16_t* residual,
                   std::size_t elements) {
  const auto join = [](float* target, const std::uint16_t* high_halves, const std::int16_t* low_halves)
                        HWY_ATTR {
                          Floats low, high;
                          Bf16Split::load(high_halves, low_halves, low, high);
                          F32Format::store(target, low, high);
                        };
  const std::size_t lanes = pair_lanes();
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) join(master + i, weight + i, residual + i);
  if (const std::size_t rest = elements - i; rest != 0) {
    Tail<float> joined;
    join(joined.lanes, Tail<std::uint16_t>(weight + i, rest).lanes,
         Tail<std::int16_t>(residual + i, rest).lanes);
    joined.copy_to(master + i, rest);
  }
}

std::uint64_t SplitBf16(std::uint16_t* weight, std::int16_t* residual, const float* master,
                        std::size_t elements) {
  const auto split = [](std::uint16_t* weights, std::int16_t* residuals, const float* source) HWY_ATTR {
    Floats low, high;
    F32Format::load(source, low, high);
    const std::size_t overflows = settle_masters<Bf16Split>(low, high);
    Bf16Split::store_weight(weights, low, high);
    Bf16Split::store_residual(residuals, low, high);
    return overflows;
  };
  const std::size_t lanes = pair_lanes();
  std::uint64_t overflows = 0;
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) overflows += split(weight + i, residual + i, master + i);
  if (const std::size_t rest = elements - i; rest != 0) {
    Tail<std::uint16_t> weights;
    Tail<std::int16_t> residuals;
    overflows += split(weights.lanes, residuals.lanes, Tail<float>(master + i, rest).lanes);
    weights.copy_to(weight + i, rest);
    residuals.copy_to(residual + i, rest);
  }
  return overflows;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(ConvertBf16ToF32);
HWY_EXPORT(ConvertF32ToBf16);
HWY_EXPORT(ConvertF16ToF32);
HWY_EXPORT(ConvertF32ToF16);
HWY_EXPORT(JoinBf16Split);
HWY_EXPORT(SplitBf16);

void bf16_to_f32(float* target, const std::uint16_t* source, std::size_t elements) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(ConvertBf16ToF32)(target, source, elements);
}

void f32_to_bf16(std::uint16_t* target, const float* source, std::size_t elements) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(ConvertF32ToBf16)(target, source, elements);
}

void f16_to_f32(float* target, const std::uint16_t* source, std::size_t elements) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(ConvertF16ToF32)(target, source, elements);
}

void f32_to_f16(std::uint16_t* target, const float* source, std::size_t elements) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(ConvertF32ToF16)(target, source, elements);
}

void join_bf16_split(float* master, const std::uint16_t* weight, const std::int16_t* residual,
                     std::size_t elements) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(JoinBf16Split)(master, weight, residual, elements);
}

std::uint64_t split_bf16(std::uint16_t* weight, std::int16_t* residual, const float* master,
                         std::size_t elements) {
  const DefaultFloatEnvironment environment;
  return HWY_DYNAMIC_DISPATCH(SplitBf16)(weight, residual, master, elements);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
