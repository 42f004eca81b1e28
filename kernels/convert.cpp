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
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes)
    F32Format::store(master + i, Bf16Split::load(weight + i, residual + i));
  if (const std::size_t rest = elements - i; rest != 0) {
    const Tail<std::uint16_t> high(weight + i, rest);
    const Tail<std::int16_t> low(residual + i, rest);
    Tail<float> joined;
    F32Format::store(joined.lanes, Bf16Split::load(high.lanes, low.lanes));
    joined.copy_to(master + i, rest);
  }
}

std::uint64_t SplitBf16(std::uint16_t* weight, std::int16_t* residual, const float* master,
                        std::size_t elements) {
  const std::size_t lanes = hn::Lanes(F32());
  std::uint64_t overflows = 0;
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    const Floats x = F32Format::load(master + i);
    overflows += hn::CountTrue(F32(), Bf16Split::overflows(x));
    Bf16Split::store(weight + i, residual + i, x);
  }
  if (const std::size_t rest = elements - i; rest != 0) {
    const Floats x = F32Format::load(Tail<float>(master + i, rest).lanes);
    overflows += hn::CountTrue(F32(), Bf16Split::overflows(x));
    Tail<std::uint16_t> high;
    Tail<std::int16_t> low;
    Bf16Split::store(high.lanes, low.lanes, x);
    high.copy_to(weight + i, rest);
    low.copy_to(residual + i, rest);
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
