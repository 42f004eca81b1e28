#include "kernels/rules.hpp"

#include <algorithm>
#include <cfloat>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adagrad.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/update-inl.hpp"

#ifndef SLUICE_KERNELS_ADAGRAD_ONCE_
#define SLUICE_KERNELS_ADAGRAD_ONCE_
namespace sluice::kernels {

/// Factors::numbers of this rule.
struct AdagradNumber {
  enum : std::size_t {
    kStep,  // lr / (1 + (t - 1) * lr_decay)
    kEps,   // at least FLT_MIN, so that 0 / eps is 0
    kWeightDecay,
  };
};

}  // namespace sluice::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

/// g = fma(weight_decay, p, g) unless it is 0; v = flush(fma(g, g, v)); p = fma(-step, g / (sqrt(v) + eps), p);
/// flush(x) = +0 if |x| < FLT_MIN.
struct AdagradRule {
  static constexpr Moments kMoments = Moments::kSecond;
  static bool steps_weights(const Factors& f) { return f.numbers[AdagradNumber::kStep] != 0.0f; }
  explicit HWY_INLINE AdagradRule(const Factors& f)
      : lr(f.numbers[AdagradNumber::kStep]),
        eps(f.numbers[AdagradNumber::kEps]),
        weight_decay(f.numbers[AdagradNumber::kWeightDecay]),
        decays(f.numbers[AdagradNumber::kWeightDecay] != 0.0f) {}
  HWY_INLINE Floats step(Floats g, Floats p, Floats&, Floats& v) const {
    if (decays) g = hn::MulAdd(all(weight_decay), p, g);
    v = hn::MulAdd(g, g, v);
    settle(v);
    return hn::NegMulAdd(all(lr), hn::Div(g, hn::Add(hn::Sqrt(v), all(eps))), p);
  }

  float lr, eps, weight_decay;
  bool decays;
};

std::uint64_t UpdateAdagrad(const Run& run, const Factors& factors, const Dither& dither,
                            const StripeHashing& stripes) {
  return step_run<AdagradRule>(run, factors, dither, stripes);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(UpdateAdagrad);

namespace {

void set_numbers(Factors& factors, const Optimizer& optimizer, double t) {
  const Adagrad& settings = std::get<Adagrad>(optimizer);
  factors.numbers[AdagradNumber::kStep] =
      static_cast<float>(settings.lr / (1.0 + (t - 1.0) * settings.lr_decay));
  factors.numbers[AdagradNumber::kEps] = std::max(static_cast<float>(settings.eps), FLT_MIN);
  factors.numbers[AdagradNumber::kWeightDecay] = static_cast<float>(settings.weight_decay);
}

std::uint64_t update_all(const Run& run, const Factors& factors, const Dither& dither,
                         const StripeHashing& stripes) {
  return HWY_DYNAMIC_DISPATCH(UpdateAdagrad)(run, factors, dither, stripes);
}

}  // namespace

const UpdateRule kAdagradRule = {&set_numbers, &update_all};

}  // namespace sluice::kernels
#endif  // HWY_ONCE
