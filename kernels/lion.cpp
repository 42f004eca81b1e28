#include "kernels/rules.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lion.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/update-inl.hpp"

#ifndef SLUICE_KERNELS_LION_ONCE_
#define SLUICE_KERNELS_LION_ONCE_
namespace sluice::kernels {

/// Factors::numbers of this rule.
struct LionNumber {
  enum : std::size_t {
    kBeta1,
    kOneMinusBeta1,
    kBeta2,
    kOneMinusBeta2,
    kStep,   // lr
    kDecay,  // 1 - lr * weight_decay
  };
};

}  // namespace sluice::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

/// c = fma(g, 1 - b1, b1 * m); p = fma(-lr, sign(c), p * decay); m = flush(fma(g, 1 - b2, b2 * m));
/// sign(0) = 0, sign(NaN) = NaN, flush(x) = +0 if |x| < FLT_MIN.
struct LionRule {
  static constexpr Moments kMoments = Moments::kFirst;
  static bool steps_weights(const Factors& f) {
    return f.numbers[LionNumber::kStep] != 0.0f || f.numbers[LionNumber::kDecay] != 1.0f;
  }
  explicit HWY_INLINE LionRule(const Factors& f)
      : beta1(f.numbers[LionNumber::kBeta1]),
        one_minus_beta1(f.numbers[LionNumber::kOneMinusBeta1]),
        beta2(f.numbers[LionNumber::kBeta2]),
        one_minus_beta2(f.numbers[LionNumber::kOneMinusBeta2]),
        lr(f.numbers[LionNumber::kStep]),
        decay(f.numbers[LionNumber::kDecay]) {}
  HWY_INLINE Floats step(Floats g, Floats p, Floats& m, Floats&) const {
    const Floats c = hn::MulAdd(g, all(one_minus_beta1), hn::Mul(all(beta1), m));
    m = hn::MulAdd(g, all(one_minus_beta2), hn::Mul(all(beta2), m));
    settle(m);
    const Floats one = hn::CopySign(hn::Set(F32(), 1.0f), c);
    const Floats sign = hn::IfThenZeroElse(hn::Eq(c, hn::Zero(F32())), hn::IfThenElse(hn::IsNaN(c), c, one));
    return hn::NegMulAdd(all(lr), sign, hn::Mul(p, all(decay)));
  }

  float beta1, one_minus_beta1, beta2, one_minus_beta2, lr, decay;
};

std::uint64_t UpdateLion(const Run& run, const Factors& factors, const Dither& dither,
                         const StripeHashing& stripes) {
  return step_run<LionRule>(run, factors, dither, stripes);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(UpdateLion);

namespace {

void set_numbers(Factors& factors, const Optimizer& optimizer, double /*t*/) {
  const Lion& settings = std::get<Lion>(optimizer);
  const auto set = [&](std::size_t number, double value) {
    factors.numbers[number] = static_cast<float>(value);
  };
  set(LionNumber::kBeta1, settings.beta1);
  set(LionNumber::kOneMinusBeta1, 1.0 - settings.beta1);
  set(LionNumber::kBeta2, settings.beta2);
  set(LionNumber::kOneMinusBeta2, 1.0 - settings.beta2);
  set(LionNumber::kStep, settings.lr);
  set(LionNumber::kDecay, 1.0 - settings.lr * settings.weight_decay);
}

std::uint64_t update_all(const Run& run, const Factors& factors, const Dither& dither,
                         const StripeHashing& stripes) {
  return HWY_DYNAMIC_DISPATCH(UpdateLion)(run, factors, dither, stripes);
}

}  // namespace

const UpdateRule kLionRule = {&set_numbers, &update_all};

}  // namespace sluice::kernels
#endif  // HWY_ONCE
