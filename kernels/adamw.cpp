#include "kernels/adamw.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/float_environment.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

/// The factors, one vector each.
struct FactorLanes {
  explicit HWY_INLINE FactorLanes(const AdamWFactors& factors)
      : gradient(hn::Set(F32(), factors.gradient)),
        beta1(hn::Set(F32(), factors.beta1)),
        one_minus_beta1(hn::Set(F32(), factors.one_minus_beta1)),
        beta2(hn::Set(F32(), factors.beta2)),
        one_minus_beta2(hn::Set(F32(), factors.one_minus_beta2)),
        root_scale(hn::Set(F32(), factors.root_scale)),
        eps(hn::Set(F32(), factors.eps)),
        decay(hn::Set(F32(), factors.decay)),
        step(hn::Set(F32(), factors.step)) {}

  Floats gradient, beta1, one_minus_beta1, beta2, one_minus_beta2, root_scale, eps, decay, step;
};

/// A moment as it is stored: nothing denormal, and every NaN the same.
HWY_INLINE Floats settled(Floats moment) {
  const auto tiny = hn::Lt(hn::Abs(moment), hn::Set(F32(), FLT_MIN));
  const Words kept = nan_or(moment, word(0x7FC00000), bits_of(moment));
  return hn::IfThenZeroElse(tiny, floats_of(kept));
}

/// Advances the moments of one vector and stores them; returns m / denominator.
template <class Gradient>
HWY_INLINE Floats advance_moments(float* moment1, float* moment2, const typename Gradient::Element* gradient,
                                  const FactorLanes& f) {
  const Floats g = hn::Mul(Gradient::load(gradient), f.gradient);
  const Floats m = settled(hn::MulAdd(g, f.one_minus_beta1, hn::Mul(f.beta1, F32Format::load(moment1))));
  const Floats v =
      settled(hn::MulAdd(hn::Mul(g, g), f.one_minus_beta2, hn::Mul(f.beta2, F32Format::load(moment2))));
  F32Format::store(moment1, m);
  F32Format::store(moment2, v);
  return hn::Div(m, hn::MulAdd(hn::Sqrt(v), f.root_scale, f.eps));
}

HWY_INLINE Floats stepped(Floats p, Floats direction, const FactorLanes& f) {
  return hn::NegMulAdd(f.step, direction, hn::Mul(p, f.decay));
}

/// One vector of bf16_split; returns how many masters overflow their weight.
template <class Gradient, bool kStepWeights>
HWY_INLINE std::size_t update_lanes(const Bf16SplitPlanes& planes, const typename Gradient::Element* gradient,
                                    const FactorLanes& f) {
  Floats p = Bf16Split::load(planes.weight, planes.residual);
  const Floats direction = advance_moments<Gradient>(planes.moment1, planes.moment2, gradient, f);
  if constexpr (kStepWeights) {
    p = stepped(p, direction, f);
    Bf16Split::store(planes.weight, planes.residual, p);
  }
  return hn::CountTrue(F32(), Bf16Split::overflows(p));
}

template <class Gradient, bool kStepWeights>
HWY_INLINE std::size_t update_lanes(const Fp32Planes& planes, const typename Gradient::Element* gradient,
                                    const FactorLanes& f) {
  const Floats direction = advance_moments<Gradient>(planes.moment1, planes.moment2, gradient, f);
  if constexpr (kStepWeights) {
    const Floats p = stepped(F32Format::load(planes.weight), direction, f);
    F32Format::store(planes.weight, floats_of(nan_or(p, word(0x7FC00000), bits_of(p))));
  }
  return 0;
}

HWY_INLINE Bf16SplitPlanes advanced(const Bf16SplitPlanes& planes, std::size_t elements) {
  return {planes.weight + elements, planes.residual + elements, planes.moment1 + elements,
          planes.moment2 + elements};
}
HWY_INLINE Fp32Planes advanced(const Fp32Planes& planes, std::size_t elements) {
  return {planes.weight + elements, planes.moment1 + elements, planes.moment2 + elements};
}

/// Room for the last elements of each plane: a whole vector works on the copy, so tail and body agree by
/// being one.
struct Bf16SplitTail {
  Bf16SplitTail(const Bf16SplitPlanes& source, std::size_t count)
      : weight(source.weight, count),
        residual(source.residual, count),
        moment1(source.moment1, count),
        moment2(source.moment2, count) {}
  Bf16SplitPlanes planes() { return {weight.lanes, residual.lanes, moment1.lanes, moment2.lanes}; }
  void copy_to(const Bf16SplitPlanes& target, std::size_t count) const {
    weight.copy_to(target.weight, count);
    residual.copy_to(target.residual, count);
    moment1.copy_to(target.moment1, count);
    moment2.copy_to(target.moment2, count);
  }
  Tail<std::uint16_t> weight;
  Tail<std::int16_t> residual;
  Tail<float> moment1, moment2;
};

struct Fp32Tail {
  Fp32Tail(const Fp32Planes& source, std::size_t count)
      : weight(source.weight, count), moment1(source.moment1, count), moment2(source.moment2, count) {}
  Fp32Planes planes() { return {weight.lanes, moment1.lanes, moment2.lanes}; }
  void copy_to(const Fp32Planes& target, std::size_t count) const {
    weight.copy_to(target.weight, count);
    moment1.copy_to(target.moment1, count);
    moment2.copy_to(target.moment2, count);
  }
  Tail<float> weight, moment1, moment2;
};

template <class Gradient, bool kStepWeights, class PlanesTail, class Planes>
std::uint64_t update(const Planes& planes, const void* gradient_bytes, std::size_t elements,
                     const AdamWFactors& factors) {
  const auto* gradient = static_cast<const typename Gradient::Element*>(gradient_bytes);
  const FactorLanes f(factors);
  const std::size_t lanes = hn::Lanes(F32());
  std::uint64_t overflows = 0;
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    overflows += update_lanes<Gradient, kStepWeights>(advanced(planes, i), gradient + i, f);
  }
  if (const std::size_t rest = elements - i; rest != 0) {
    PlanesTail tail(advanced(planes, i), rest);
    const Tail<typename Gradient::Element> gradient_tail(gradient + i, rest);
    overflows += update_lanes<Gradient, kStepWeights>(tail.planes(), gradient_tail.lanes, f);
    tail.copy_to(advanced(planes, i), rest);
  }
  return overflows;
}

template <class PlanesTail, class Planes>
std::uint64_t update(const Planes& planes, const void* gradient, GradientPlane gradient_plane,
                     std::size_t elements, const AdamWFactors& factors) {
  const bool step_weights = factors.step != 0.0f || factors.decay != 1.0f;
  if (gradient_plane == GradientPlane::kF32) {
    return step_weights ? update<F32Format, true, PlanesTail>(planes, gradient, elements, factors)
                        : update<F32Format, false, PlanesTail>(planes, gradient, elements, factors);
  }
  return step_weights ? update<Bf16Format, true, PlanesTail>(planes, gradient, elements, factors)
                      : update<Bf16Format, false, PlanesTail>(planes, gradient, elements, factors);
}

std::uint64_t UpdateBf16Split(const Bf16SplitPlanes& planes, const void* gradient,
                              GradientPlane gradient_plane, std::size_t elements,
                              const AdamWFactors& factors) {
  return update<Bf16SplitTail>(planes, gradient, gradient_plane, elements, factors);
}

void UpdateFp32(const Fp32Planes& planes, const void* gradient, GradientPlane gradient_plane,
                std::size_t elements, const AdamWFactors& factors) {
  update<Fp32Tail>(planes, gradient, gradient_plane, elements, factors);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {

HWY_EXPORT(UpdateBf16Split);
HWY_EXPORT(UpdateFp32);

AdamWFactors adamw_factors(const AdamWSettings& settings, std::uint64_t step_count, double gradient_factor) {
  const DefaultFloatEnvironment environment;
  const auto t = static_cast<double>(step_count);
  return {
      .gradient = static_cast<float>(gradient_factor),
      .beta1 = static_cast<float>(settings.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - settings.beta1),
      .beta2 = static_cast<float>(settings.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - settings.beta2),
      .root_scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(settings.beta2, t))),
      .eps = std::max(static_cast<float>(settings.eps), FLT_MIN),
      .decay = static_cast<float>(1.0 - settings.lr * settings.weight_decay),
      .step = static_cast<float>(settings.lr / (1.0 - std::pow(settings.beta1, t))),
  };
}

std::uint64_t adamw_bf16_split(const Bf16SplitPlanes& planes, const void* gradient,
                               GradientPlane gradient_plane, std::size_t elements,
                               const AdamWFactors& factors) {
  const DefaultFloatEnvironment environment;
  return HWY_DYNAMIC_DISPATCH(UpdateBf16Split)(planes, gradient, gradient_plane, elements, factors);
}

void adamw_fp32(const Fp32Planes& planes, const void* gradient, GradientPlane gradient_plane,
                std::size_t elements, const AdamWFactors& factors) {
  const DefaultFloatEnvironment environment;
  HWY_DYNAMIC_DISPATCH(UpdateFp32)(planes, gradient, gradient_plane, elements, factors);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
