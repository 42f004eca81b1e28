#include "kernels/rules.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adam.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/adam-inl.hpp"
#include "kernels/update-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

/// g = fma(weight_decay, p, g) unless it is 0; p = fma(-step, direction, p).
struct AdamRule {
  static constexpr Moments kMoments = Moments::kBoth;
  static bool steps_weights(const Factors& f) { return f.numbers[AdamNumber::kStep] != 0.0f; }
  explicit HWY_INLINE AdamRule(const Factors& f)
      : direction(f),
        lr(f.numbers[AdamNumber::kStep]),
        weight_decay(f.numbers[AdamNumber::kDecay]),
        decays(f.numbers[AdamNumber::kDecay] != 0.0f) {}
  HWY_INLINE Floats step(Floats g, Floats p, Floats& m, Floats& v) const {
    if (decays) g = hn::MulAdd(all(weight_decay), p, g);
    return hn::NegMulAdd(all(lr), direction.advance(g, m, v), p);
  }

  AdamDirection direction;
  float lr, weight_decay;
  bool decays;
};

std::uint64_t UpdateAdam(const Run& run, const Factors& factors, const Dither& dither,
                         const StripeHashing& stripes) {
  return step_run<AdamRule>(run, factors, dither, stripes);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(UpdateAdam);

namespace {

void set_numbers(Factors& factors, const Optimizer& optimizer, double t) {
  const Adam& settings = std::get<Adam>(optimizer);
  set_adam_numbers(factors, settings, t);
  factors.numbers[AdamNumber::kDecay] = static_cast<float>(settings.weight_decay);
}

std::uint64_t update_all(const Run& run, const Factors& factors, const Dither& dither,
                         const StripeHashing& stripes) {
  return HWY_DYNAMIC_DISPATCH(UpdateAdam)(run, factors, dither, stripes);
}

}  // namespace

const UpdateRule kAdamRule = {&set_numbers, &update_all};

}  // namespace sluice::kernels
#endif  // HWY_ONCE
