#include "kernels/rules.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/adam-inl.hpp"
#include "kernels/update-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

/// p = fma(-step, direction, p * decay).
struct AdamWRule {
  static constexpr Moments kMoments = Moments::kBoth;
  static bool steps_weights(const Factors& f) {
    return f.numbers[AdamNumber::kStep] != 0.0f || f.numbers[AdamNumber::kDecay] != 1.0f;
  }
  explicit HWY_INLINE AdamWRule(const Factors& f)
      : direction(f), lr(f.numbers[AdamNumber::kStep]), decay(f.numbers[AdamNumber::kDecay]) {}
  HWY_INLINE Floats step(Floats g, Floats p, Floats& m, Floats& v) const {
    return hn::NegMulAdd(all(lr), direction.advance(g, m, v), hn::Mul(p, all(decay)));
  }

  AdamDirection direction;
  float lr, decay;
};

std::uint64_t UpdateAdamW(const Run& run, const Factors& factors, const Dither& dither,
                          const StripeHashing& stripes) {
  return step_run<AdamWRule>(run, factors, dither, stripes);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(UpdateAdamW);

namespace {

void set_numbers(Factors& factors, const Optimizer& optimizer, double t) {
  const AdamW& settings = std::get<AdamW>(optimizer);
  set_adam_numbers(factors, settings, t);
  factors.numbers[AdamNumber::kDecay] = static_cast<float>(1.0 - settings.lr * settings.weight_decay);
}

std::uint64_t update_all(const Run& run, const Factors& factors, const Dither& dither,
                         const StripeHashing& stripes) {
  return HWY_DYNAMIC_DISPATCH(UpdateAdamW)(run, factors, dither, stripes);
}

}  // namespace

const UpdateRule kAdamWRule = {&set_numbers, &update_all};

}  // namespace sluice::kernels
#endif  // HWY_ONCE
