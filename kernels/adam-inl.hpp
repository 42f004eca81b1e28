// What AdamW and Adam share, once per target: include inside a foreach_target source only.
#if defined(SLUICE_KERNELS_ADAM_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_ADAM_INL_HPP_
#undef SLUICE_KERNELS_ADAM_INL_HPP_
#else
#define SLUICE_KERNELS_ADAM_INL_HPP_
#endif

#include "kernels/adam_numbers.hpp"
#include "kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

/// m = flush(fma(g, 1 - b1, b1 * m)), v = flush(fma(g * g, 1 - b2, b2 * v)) and
/// m / fma(sqrt(v), root_scale, eps); flush(x) = +0 if |x| < FLT_MIN.
struct AdamDirection {
  explicit HWY_INLINE AdamDirection(const Factors& f)
      : beta1(hn::Set(F32(), f.numbers[AdamNumber::kBeta1])),
        one_minus_beta1(hn::Set(F32(), f.numbers[AdamNumber::kOneMinusBeta1])),
        beta2(hn::Set(F32(), f.numbers[AdamNumber::kBeta2])),
        one_minus_beta2(hn::Set(F32(), f.numbers[AdamNumber::kOneMinusBeta2])),
        root_scale(hn::Set(F32(), f.numbers[AdamNumber::kRootScale])),
        eps(hn::Set(F32(), f.numbers[AdamNumber::kEps])) {}

  HWY_INLINE Floats advance(Floats g, Floats& m, Floats& v) const {
    m = settled(hn::MulAdd(g, one_minus_beta1, hn::Mul(beta1, m)));
    v = settled(hn::MulAdd(hn::Mul(g, g), one_minus_beta2, hn::Mul(beta2, v)));
    return hn::Div(m, hn::MulAdd(hn::Sqrt(v), root_scale, eps));
  }

  Floats beta1, one_minus_beta1, beta2, one_minus_beta2, root_scale, eps;
};

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
