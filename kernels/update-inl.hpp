// The loop that every update rule runs in, once per target: include inside a foreach_target source only.
#if defined(SLUICE_KERNELS_UPDATE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_UPDATE_INL_HPP_
#undef SLUICE_KERNELS_UPDATE_INL_HPP_
#else
#define SLUICE_KERNELS_UPDATE_INL_HPP_
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "kernels/lanes-inl.hpp"
#include "kernels/loop_planes-inl.hpp"
#include "kernels/moments8-inl.hpp"
#include "kernels/rules.hpp"
#include "kernels/run_sums-inl.hpp"
#include "kernels/update.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

// A rule is a class of this face:
//   static constexpr Moments kMoments;           which running means it has
//   static bool steps_weights(const Factors&);   false: with these factors (lr = 0) weights stay as they are
//   explicit Rule(const Factors&);               the factors, one vector each
//   Floats step(Floats g, Floats p, Floats& m, Floats& v) const;
//                                                returns p stepped, leaves m and v settled; untouched what it has not

// Divisions and roots fill the window in which a core would find the next misses by itself, so they are asked for ahead.
// An address beyond the planes is only a hint. How far, in elements: where pieces are hashed before they are updated, as
// many as a piece, found flat from 256 to 1024; where nothing comes between, what has been asked for is in the way
// before it is needed (AdamW, EPYC Zen 4, memory: 0.526 ns at 192, 0.524 at 128, 0.538 at 256, 0.588 at 768).
#ifdef SLUICE_KERNELS_AVX512
inline constexpr std::size_t kPrefetchElements = 192;
#else
inline constexpr std::size_t kPrefetchElements = 768;
#endif

/// What a loop over vectors works on, looked up once.
template <bool kStepWeights, class Rule, class Gradient, class Weights, class MomentPlanes>
struct StepLoop {
  using GradientElement = typename Gradient::Element;
  HWY_INLINE StepLoop(const PlanePointers& planes, const std::byte* gradient_bytes, const Factors& factors,
                      const Dither& dither)
      : rule(factors),
        factor(factors.gradient),
        weights(planes),
        moments(planes, dither),
        gradient(reinterpret_cast<const GradientElement*>(gradient_bytes)) {}

  HWY_INLINE void prefetch(std::size_t i) const {
    weights.prefetch(i + kPrefetchElements);
    moments.prefetch(i + kPrefetchElements);
    prefetch_pair(gradient + i + kPrefetchElements);
  }

  /// Steps the pair from element i on and stores all of it but the weights, which are left in `low` and `high`. Adds it to
  /// the sums as it was and as it is left. What needs no quotient comes before what does.
  template <class Sums>
  HWY_INLINE void begin(std::size_t i, Floats& low, Floats& high, Sums& read, Sums& written) const {
    Floats g_low, g_high;
    Gradient::load(gradient + i, g_low, g_high);
    weights.load(i, low, high);
    Floats m_low = hn::Zero(F32()), m_high = m_low, v_low = m_low, v_high = m_low;
    moments.load(i, m_low, m_high, v_low, v_high);
    const Floats stepped_low = rule.step(hn::Mul(g_low, all(factor)), low, m_low, v_low);
    const Floats stepped_high = rule.step(hn::Mul(g_high, all(factor)), high, m_high, v_high);
    weights.add_to(read, i);
    moments.add_to(read, i);
    moments.store(i, m_low, m_high, v_low, v_high, written);
    if constexpr (kStepWeights) {
      low = stepped_low;
      high = stepped_high;
    }
  }

  /// Stores the weights that begin() has left; returns how many masters overflow their weight.
  template <class Sums>
  HWY_INLINE std::size_t finish(std::size_t i, Floats low, Floats high, Sums& written) const {
    const std::size_t overflows = settle_masters<Weights>(low, high);
    if constexpr (kStepWeights) {
      weights.store(i, low, high, written);
    } else {
      weights.add_to(written, i);
    }
    return overflows;
  }

  const Rule rule;
  const float factor;
  const Weights weights;
  const MomentPlanes moments;
  const GradientElement* const gradient;
};

template <bool kStepWeights, class Rule, class Gradient, class Weights, class MomentPlanes>
std::uint64_t step_elements(const PlanePointers& planes, const std::byte* gradient_bytes,
                            std::size_t elements, const Factors& factors, const Dither& dither) {
  using Loop = StepLoop<kStepWeights, Rule, Gradient, Weights, MomentPlanes>;
  const Loop loop(planes, gradient_bytes, factors, dither);
  const std::size_t lanes = pair_lanes();
  const std::size_t whole = elements / lanes * lanes;
  NoSums none;
  std::uint64_t overflows = 0;
  if (whole != 0) {
    // A pair's weights are stored after the next pair has begun: by then its quotients are there, for which a core that
    // holds fewer instructions than two pairs have would wait (AdamW, EPYC Zen 3, in cache: 0.67 to 0.60 ns).
    Floats low, high;
    loop.prefetch(0);
    loop.begin(0, low, high, none, none);
    for (std::size_t i = lanes; i != whole; i += lanes) {
      Floats next_low, next_high;
      loop.prefetch(i);
      loop.begin(i, next_low, next_high, none, none);
      overflows += loop.finish(i - lanes, low, high, none);
      low = next_low;
      high = next_high;
    }
    overflows += loop.finish(whole - lanes, low, high, none);
  }
  if (const std::size_t rest = elements - whole; rest != 0) {
    const TailPlanes<Weights, MomentPlanes> tail(planes, whole, rest);
    const Tail<typename Gradient::Element> gradient(loop.gradient + whole, rest);
    const Loop padded(tail.planes(), reinterpret_cast<const std::byte*>(gradient.lanes), factors,
                      {dither.key, dither.first_element + whole});
    Floats low, high;
    padded.begin(0, low, high, none, none);
    overflows += padded.finish(0, low, high, none);
    tail.copy_back();
  }
  return overflows;
}

#ifdef SLUICE_KERNELS_AVX512

/// step_elements with stripes added as it goes, from the registers that they are in.
template <bool kStepWeights, class Rule, class Gradient, class Weights, class MomentPlanes>
std::uint64_t step_and_hash(const PlanePointers& planes, const std::byte* gradient_bytes,
                            std::size_t elements, const Factors& factors, const Dither& dither,
                            const StripeHashing& stripes) {
  static_assert(kStripeElements * sizeof(float) == 2 * sizeof(Floats), "a pair's elements are whole stripes");
  const StepLoop<kStepWeights, Rule, Gradient, Weights, MomentPlanes> loop(planes, gradient_bytes, factors,
                                                                           dither);
  std::uint64_t overflows = 0;
  RunSums<LoopPlanes<Weights, MomentPlanes>> read(stripes.read), written(stripes.written);
  for (std::size_t first = 0; first < elements; first += kBlockElements) {
    const std::size_t end = std::min(first + kBlockElements, elements);
    for (std::size_t i = first; i < end; i += kStripeElements) {
      Floats low, high;
      loop.prefetch(i);
      loop.begin(i, low, high, read, written);
      overflows += loop.finish(i, low, high, written);
    }
    read.pass(end - first);
    written.pass(end - first);
  }
  read.give_back();
  written.give_back();
  return overflows;
}

#endif

/// step_elements, or step_and_hash where there is something to hash.
template <bool kStepWeights, class Rule, class Gradient, class Weights, class MomentPlanes>
std::uint64_t step_planes(const PlanePointers& planes, const std::byte* gradient_bytes, std::size_t elements,
                          const Factors& factors, const Dither& dither,
                          [[maybe_unused]] const StripeHashing& stripes) {
#ifdef SLUICE_KERNELS_AVX512
  if (stripes.any()) {
    return step_and_hash<kStepWeights, Rule, Gradient, Weights, MomentPlanes>(
        planes, gradient_bytes, elements, factors, dither, stripes);
  }
#endif
  return step_elements<kStepWeights, Rule, Gradient, Weights, MomentPlanes>(planes, gradient_bytes, elements,
                                                                            factors, dither);
}

/// bf16 moments: cut where the upper half of the element's number changes, which keys the random bits.
template <bool kStepWeights, class Rule, class Gradient>
std::uint64_t step_bf16_moments(const Run& run, const Factors& factors, Dither dither,
                                const StripeHashing& stripes) {
  std::uint64_t overflows = 0;
  PlanePointers planes = run.planes;
  const std::byte* gradient = run.gradient;
  for (std::size_t left = run.elements; left != 0;) {
    const std::uint64_t to_cut = (std::uint64_t{1} << 32) - (dither.first_element & 0xFFFFFFFF);
    const std::size_t count = std::min<std::uint64_t>(left, to_cut);
    overflows += step_planes<kStepWeights, Rule, Gradient, SplitWeights, Bf16Moments<Rule::kMoments>>(
        planes, gradient, count, factors, dither, stripes);
    for (std::byte*& plane : planes)
      if (plane != nullptr) plane += count * 2;
    gradient += count * sizeof(typename Gradient::Element);
    dither.first_element += count;
    left -= count;
  }
  return overflows;
}

/// 8-bit moments: a granule's are decoded into a buffer, updated there as fp32, and encoded.
template <bool kStepWeights, class Rule, class Gradient>
std::uint64_t step_moments8(const Run& run, const Factors& factors, const Dither& dither) {
  constexpr bool kFirst = has_first(Rule::kMoments), kSecond = has_second(Rule::kMoments);
  auto* codes1 = plane_of<std::uint8_t>(run.planes, Plane::kMoment1);
  auto* codes2 = plane_of<std::uint8_t>(run.planes, Plane::kMoment2);
  auto* scales1 = plane_of<float>(run.planes, Plane::kScale1);
  auto* scales2 = plane_of<float>(run.planes, Plane::kScale2);
  const SplitWeights weights(run.planes);
  HWY_ALIGN float moments1[kGranuleElements];
  HWY_ALIGN float moments2[kGranuleElements];
  std::uint64_t overflows = 0;
  for (std::size_t begin = 0, granule = 0; begin < run.elements; begin += kGranuleElements, ++granule) {
    const std::size_t count = std::min(kGranuleElements, run.elements - begin);
    for (std::size_t line = 0; line < kGranuleElements; line += 64) {
      if constexpr (kFirst) hwy::Prefetch(codes1 + begin + kPrefetchElements + line);
      if constexpr (kSecond) hwy::Prefetch(codes2 + begin + kPrefetchElements + line);
    }
    PlanePointers planes{};
    at(planes, Plane::kWeight) = reinterpret_cast<std::byte*>(weights.weight + begin);
    at(planes, Plane::kResidual) = reinterpret_cast<std::byte*>(weights.residual + begin);
    if constexpr (kFirst) {
      at(planes, Plane::kMoment1) = reinterpret_cast<std::byte*>(moments1);
      decode_granule<Moment8::kSigned>(moments1, codes1 + begin, scales1[granule], count);
    }
    if constexpr (kSecond) {
      at(planes, Plane::kMoment2) = reinterpret_cast<std::byte*>(moments2);
      decode_granule<Moment8::kUnsigned>(moments2, codes2 + begin, scales2[granule], count);
    }
    overflows += step_elements<kStepWeights, Rule, Gradient, SplitWeights, BufferedMoments<Rule::kMoments>>(
        planes, run.gradient + begin * sizeof(typename Gradient::Element), count, factors, dither);
    if constexpr (kFirst)
      scales1[granule] = encode_granule<Moment8::kSigned>(codes1 + begin, moments1, count);
    if constexpr (kSecond)
      scales2[granule] = encode_granule<Moment8::kUnsigned>(codes2 + begin, moments2, count);
  }
  return overflows;
}

template <bool kStepWeights, class Rule, class Gradient>
std::uint64_t step_policy(const Run& run, const Factors& factors, const Dither& dither,
                          const StripeHashing& stripes) {
  using Fp32 = Fp32Moments<Rule::kMoments>;
  const auto step = [&](auto kernel) {
    return kernel(run.planes, run.gradient, run.elements, factors, dither, stripes);
  };
  switch (run.policy) {
    case Policy::kBf16Split:
      return step(step_planes<kStepWeights, Rule, Gradient, SplitWeights, Fp32>);
    case Policy::kFp32:
      return step(step_planes<kStepWeights, Rule, Gradient, Fp32Weights, Fp32>);
    case Policy::kFp16Master:
      return step(step_planes<kStepWeights, Rule, Gradient, Fp16MasterWeights, Fp32>);
    case Policy::kBf16Moments:
      return step_bf16_moments<kStepWeights, Rule, Gradient>(run, factors, dither, stripes);
    case Policy::kMoments8:
      return step_moments8<kStepWeights, Rule, Gradient>(run, factors, dither);
    case Policy::kFrozen:
      break;
  }
  return 0;
}

/// A rule's `update`.
template <class Rule>
std::uint64_t step_run(const Run& run, const Factors& factors, const Dither& dither,
                       const StripeHashing& stripes) {
  if (run.gradient_plane == GradientPlane::kF32) {
    return Rule::steps_weights(factors) ? step_policy<true, Rule, F32Format>(run, factors, dither, stripes)
                                        : step_policy<false, Rule, F32Format>(run, factors, dither, stripes);
  }
  return Rule::steps_weights(factors) ? step_policy<true, Rule, Bf16Format>(run, factors, dither, stripes)
                                      : step_policy<false, Rule, Bf16Format>(run, factors, dither, stripes);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
