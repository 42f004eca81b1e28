#include "kernels/adamw.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/float_environment.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/cache_control.h>

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

// Divisions and roots fill the window in which a core would find the next misses by itself, so they are asked
// for ahead: 3 KiB of fp32, found flat from 256 to 1024 elements. An address beyond the planes is only a
// hint.
inline constexpr std::size_t kPrefetchElements = 768;

HWY_INLINE void prefetch(const Bf16SplitPlanes& planes) {
  hwy::Prefetch(planes.weight);
  hwy::Prefetch(planes.residual);
  hwy::Prefetch(planes.moment1);
  hwy::Prefetch(planes.moment2);
}
HWY_INLINE void prefetch(const Fp32Planes& planes) {
  hwy::Prefetch(planes.weight);
  hwy::Prefetch(planes.moment1);
  hwy::Prefetch(planes.moment2);
}

template <class Gradient, bool kStepWeights, class PlanesTail, class Planes>
std::uint64_t update(const Planes& planes, const void* gradient_bytes, std::size_t elements,
                     const AdamWFactors& factors) {
  const auto* gradient = static_cast<const typename Gradient::Element*>(gradient_bytes);
  const FactorLanes f(factors);
  const std::size_t lanes = hn::Lanes(F32());
  std::uint64_t overflows = 0;
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    prefetch(planes_from(planes, i + kPrefetchElements));
    hwy::Prefetch(gradient + i + kPrefetchElements);
    overflows += update_lanes<Gradient, kStepWeights>(planes_from(planes, i), gradient + i, f);
  }
  if (const std::size_t rest = elements - i; rest != 0) {
    PlanesTail tail(planes_from(planes, i), rest);
    const Tail<typename Gradient::Element> gradient_tail(gradient + i, rest);
    overflows += update_lanes<Gradient, kStepWeights>(tail.planes(), gradient_tail.lanes, f);
    tail.copy_to(planes_from(planes, i), rest);
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

std::uint64_t UpdateFp32(const Fp32Planes& planes, const void* gradient, GradientPlane gradient_plane,
                         std::size_t elements, const AdamWFactors& factors) {
  return update<Fp32Tail>(planes, gradient, gradient_plane, elements, factors);
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

namespace {

/// Elements that are hashed and updated by turns: as many as are asked for ahead, so that the bytes to come
/// arrive while these are hashed. Both, 12 KiB of planes and gradient each, fit a first-level cache of 32
/// KiB; XXH3 is slower on pieces of 1 KiB or less.
constexpr std::size_t kPieceElements = 768;

void append(Bf16SplitHashers* hashers, const Bf16SplitPlanes& planes, std::size_t elements) {
  if (hashers == nullptr) return;
  hashers->weight.update(planes.weight, elements * sizeof(*planes.weight));
  hashers->residual.update(planes.residual, elements * sizeof(*planes.residual));
  hashers->moment1.update(planes.moment1, elements * sizeof(*planes.moment1));
  hashers->moment2.update(planes.moment2, elements * sizeof(*planes.moment2));
}
void append(Fp32Hashers* hashers, const Fp32Planes& planes, std::size_t elements) {
  if (hashers == nullptr) return;
  hashers->weight.update(planes.weight, elements * sizeof(*planes.weight));
  hashers->moment1.update(planes.moment1, elements * sizeof(*planes.moment1));
  hashers->moment2.update(planes.moment2, elements * sizeof(*planes.moment2));
}

/// Runs `kernel` over the elements, whole if nothing is hashed, else by pieces that are hashed around it.
template <class Planes, class Hashing, class Kernel>
std::uint64_t update_and_hash(const Planes& planes, const void* gradient, GradientPlane gradient_plane,
                              std::size_t elements, const AdamWFactors& factors, const Hashing& hashing,
                              Kernel kernel) {
  const DefaultFloatEnvironment environment;
  const bool hashes = hashing.read != nullptr || hashing.written != nullptr;
  const std::size_t gradient_bytes = gradient_plane == GradientPlane::kF32 ? 4 : 2;
  const std::size_t piece_elements = hashes ? kPieceElements : elements;
  std::uint64_t overflows = 0;
  for (std::size_t begin = 0; begin < elements; begin += piece_elements) {
    const std::size_t count = std::min(piece_elements, elements - begin);
    const Planes piece = planes_from(planes, begin);
    append(hashing.read, piece, count);
    overflows += kernel(piece, static_cast<const std::byte*>(gradient) + begin * gradient_bytes,
                        gradient_plane, count, factors);
    append(hashing.written, piece, count);
  }
  return overflows;
}

}  // namespace

std::uint64_t adamw_bf16_split(const Bf16SplitPlanes& planes, const void* gradient,
                               GradientPlane gradient_plane, std::size_t elements,
                               const AdamWFactors& factors, const Bf16SplitHashing& hashing) {
  return update_and_hash(planes, gradient, gradient_plane, elements, factors, hashing,
                         HWY_DYNAMIC_DISPATCH(UpdateBf16Split));
}

void adamw_fp32(const Fp32Planes& planes, const void* gradient, GradientPlane gradient_plane,
                std::size_t elements, const AdamWFactors& factors, const Fp32Hashing& hashing) {
  update_and_hash(planes, gradient, gradient_plane, elements, factors, hashing,
                  HWY_DYNAMIC_DISPATCH(UpdateFp32));
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
