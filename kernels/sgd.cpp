#include "kernels/rules.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sgd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/update-inl.hpp"

#ifndef SLUICE_KERNELS_SGD_ONCE_
#define SLUICE_KERNELS_SGD_ONCE_
namespace sluice::kernels {

/// Factors::numbers of this rule.
struct SgdNumber {
  enum : std::size_t {
    kStep,  // lr
    kMomentum,
    kOneMinusDampening,
    kWeightDecay,
    kRestart,   // 1: the buffer becomes the gradient (first step, or no momentum)
    kNesterov,  // 0 or 1
  };
};

}  // namespace sluice::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

/// g = fma(weight_decay, p, g) unless it is 0; m = flush(restart ? g : fma(g, 1 - dampening, momentum * m));
/// p = fma(-lr, nesterov ? fma(momentum, m, g) : m, p); flush(x) = +0 if |x| < FLT_MIN.
struct SgdRule {
  static constexpr Moments kMoments = Moments::kFirst;
  static bool steps_weights(const Factors& f) { return f.numbers[SgdNumber::kStep] != 0.0f; }
  explicit HWY_INLINE SgdRule(const Factors& f)
      : lr(f.numbers[SgdNumber::kStep]),
        momentum(f.numbers[SgdNumber::kMomentum]),
        one_minus_dampening(f.numbers[SgdNumber::kOneMinusDampening]),
        weight_decay(f.numbers[SgdNumber::kWeightDecay]),
        decays(f.numbers[SgdNumber::kWeightDecay] != 0.0f),
        restarts(f.numbers[SgdNumber::kRestart] != 0.0f),
        nesterov(f.numbers[SgdNumber::kNesterov] != 0.0f) {}
  HWY_INLINE Floats step(Floats g, Floats p, Floats& m, Floats&) const {
    if (decays) g = hn::MulAdd(all(weight_decay), p, g);
    m = restarts ? g : hn::MulAdd(g, all(one_minus_dampening), hn::Mul(all(momentum), m));
    settle(m);
    return hn::NegMulAdd(all(lr), nesterov ? hn::MulAdd(all(momentum), m, g) : m, p);
  }

  float lr, momentum, one_minus_dampening, weight_decay;
  bool decays, restarts, nesterov;
};

std::uint64_t UpdateSgd(const Run& run, const Factors& factors, const Dither& dither,
                        const StripeHashing& stripes) {
  return step_run<SgdRule>(run, factors, dither, stripes);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(UpdateSgd);

namespace {

void set_numbers(Factors& factors, const Optimizer& optimizer, double t) {
  const Sgd& settings = std::get<Sgd>(optimizer);
  const auto set = [&](std::size_t number, double value) {
    factors.numbers[number] = static_cast<float>(value);
  };
  set(SgdNumber::kStep, settings.lr);
  set(SgdNumber::kMomentum, settings.momentum);
  set(SgdNumber::kOneMinusDampening, 1.0 - settings.dampening);
  set(SgdNumber::kWeightDecay, settings.weight_decay);
  set(SgdNumber::kRestart, t == 1.0 || settings.momentum == 0.0 ? 1.0 : 0.0);
  set(SgdNumber::kNesterov, settings.nesterov ? 1.0 : 0.0);
}

std::uint64_t update_all(const Run& run, const Factors& factors, const Dither& dither,
                         const StripeHashing& stripes) {
  return HWY_DYNAMIC_DISPATCH(UpdateSgd)(run, factors, dither, stripes);
}

}  // namespace

const UpdateRule kSgdRule = {&set_numbers, &update_all};

}  // namespace sluice::kernels
#endif  // HWY_ONCE
