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
      : beta1(f.numbers[AdamNumber::kBeta1]),
        one_minus_beta1(f.numbers[AdamNumber::kOneMinusBeta1]),
        beta2(f.numbers[AdamNumber::kBeta2]),
        one_minus_beta2(f.numbers[AdamNumber::kOneMinusBeta2]),
        root_scale(f.numbers[AdamNumber::kRootScale]),
        eps(f.numbers[AdamNumber::kEps]) {}

  HWY_INLINE Floats advance(Floats g, Floats& m, Floats& v) const {
    m = hn::MulAdd(g, all(one_minus_beta1), hn::Mul(all(beta1), m));
    v = hn::MulAdd(hn::Mul(g, g), all(one_minus_beta2), hn::Mul(all(beta2), v));
    settle(m, v);
    return hn::Div(m, hn::MulAdd(hn::Sqrt(v), all(root_scale), all(eps)));
  }

  float beta1, one_minus_beta1, beta2, one_minus_beta2, root_scale, eps;
};

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
