// How each policy keeps the weights and moments of an update, in pairs of vectors; once per target: include inside a
// foreach_target source only.
#if defined(SLUICE_KERNELS_LOOP_PLANES_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_LOOP_PLANES_INL_HPP_
#undef SLUICE_KERNELS_LOOP_PLANES_INL_HPP_
#else
#define SLUICE_KERNELS_LOOP_PLANES_INL_HPP_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "kernels/dither-inl.hpp"
#include "kernels/lanes-inl.hpp"
#include "kernels/rules.hpp"
#include "kernels/update.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE T* plane_of(const PlanePointers& planes, Plane plane) {
  return reinterpret_cast<T*>(at(planes, plane));
}

/// Asks for the memory of a pair's elements of a plane, each cache line once.
template <class T>
HWY_INLINE void prefetch_pair(const T* elements) {
  constexpr std::size_t kLineBytes = 64;
  const auto* bytes = reinterpret_cast<const std::byte*>(elements);
  for (std::size_t line = 0; line < pair_lanes() * sizeof(T); line += kLineBytes) hwy::Prefetch(bytes + line);
}

// The weights of a policy: pairs of them loaded and stored as the fp32 values that a rule works on. A pair of a plane is
// added to the sums as soon as it is stored, since after the next store, to another plane, the compiler would load it
// again; and a load so soon after stores at the same places of their pages waits for them.

struct SplitWeights {
  static constexpr std::array kPlanes = {ElementBytes{Plane::kWeight, 2}, ElementBytes{Plane::kResidual, 2}};
  static constexpr float kOverflow = Bf16Split::kOverflow;
  explicit HWY_INLINE SplitWeights(const PlanePointers& planes)
      : weight(plane_of<std::uint16_t>(planes, Plane::kWeight)),
        residual(plane_of<std::int16_t>(planes, Plane::kResidual)) {}
  HWY_INLINE void load(std::size_t i, Floats& low, Floats& high) const {
    Bf16Split::load(weight + i, residual + i, low, high);
  }
  template <class Sums>
  HWY_INLINE void store(std::size_t i, Floats low, Floats high, Sums& written) const {
    Bf16Split::store_weight(weight + i, low, high);
    written.template add<Plane::kWeight>(weight, i);
    Bf16Split::store_residual(residual + i, low, high);
    written.template add<Plane::kResidual>(residual, i);
  }
  template <class Sums>
  HWY_INLINE void add_to(Sums& sums, std::size_t i) const {
    sums.template add<Plane::kWeight>(weight, i);
    sums.template add<Plane::kResidual>(residual, i);
  }
  HWY_INLINE void prefetch(std::size_t i) const {
    prefetch_pair(weight + i);
    prefetch_pair(residual + i);
  }

  std::uint16_t* weight;
  std::int16_t* residual;
};

struct Fp32Weights {
  static constexpr std::array kPlanes = {ElementBytes{Plane::kWeight, 4}};
  static constexpr float kOverflow = std::numeric_limits<float>::infinity();
  explicit HWY_INLINE Fp32Weights(const PlanePointers& planes)
      : weight(plane_of<float>(planes, Plane::kWeight)) {}
  HWY_INLINE void load(std::size_t i, Floats& low, Floats& high) const {
    F32Format::load(weight + i, low, high);
  }
  template <class Sums>
  HWY_INLINE void store(std::size_t i, Floats low, Floats high, Sums& written) const {
    F32Format::store(weight + i, low, high);
    add_to(written, i);
  }
  template <class Sums>
  HWY_INLINE void add_to(Sums& sums, std::size_t i) const {
    sums.template add<Plane::kWeight>(weight, i);
  }
  HWY_INLINE void prefetch(std::size_t i) const { prefetch_pair(weight + i); }

  float* weight;
};

struct Fp16MasterWeights {
  static constexpr std::array kPlanes = {ElementBytes{Plane::kWeight, 2}, ElementBytes{Plane::kMaster, 4}};
  // In the middle of the greatest half and 2^16, and ties go to the even one.
  static constexpr float kOverflow = 65520.0f;
  explicit HWY_INLINE Fp16MasterWeights(const PlanePointers& planes)
      : weight(plane_of<std::uint16_t>(planes, Plane::kWeight)),
        master(plane_of<float>(planes, Plane::kMaster)) {}
  HWY_INLINE void load(std::size_t i, Floats& low, Floats& high) const {
    F32Format::load(master + i, low, high);
  }
  template <class Sums>
  HWY_INLINE void store(std::size_t i, Floats low, Floats high, Sums& written) const {
    F32Format::store(master + i, low, high);
    written.template add<Plane::kMaster>(master, i);
    F16Format::store(weight + i, low, high);
    written.template add<Plane::kWeight>(weight, i);
  }
  template <class Sums>
  HWY_INLINE void add_to(Sums& sums, std::size_t i) const {
    sums.template add<Plane::kMaster>(master, i);
    sums.template add<Plane::kWeight>(weight, i);
  }
  HWY_INLINE void prefetch(std::size_t i) const {
    prefetch_pair(weight + i);
    prefetch_pair(master + i);
  }

  std::uint16_t* weight;
  float* master;
};

/// Those that a rule has, of `bytes` an element.
template <Moments kMoments>
constexpr auto moment_planes(std::size_t bytes) {
  const ElementBytes first{Plane::kMoment1, bytes}, second{Plane::kMoment2, bytes};
  if constexpr (kMoments == Moments::kBoth) {
    return std::array{first, second};
  } else {
    return std::array{has_first(kMoments) ? first : second};
  }
}

/// The moments' planes as arrays of T; what a rule does not have is neither touched nor there.
template <class T, Moments kMoments>
struct MomentArrays {
  static constexpr auto kPlanes = moment_planes<kMoments>(sizeof(T));
  explicit HWY_INLINE MomentArrays(const PlanePointers& planes)
      : first(plane_of<T>(planes, Plane::kMoment1)), second(plane_of<T>(planes, Plane::kMoment2)) {}
  HWY_INLINE void prefetch(std::size_t i) const {
    if constexpr (has_first(kMoments)) prefetch_pair(first + i);
    if constexpr (has_second(kMoments)) prefetch_pair(second + i);
  }
  template <class Sums>
  HWY_INLINE void add_to(Sums& sums, std::size_t i) const {
    if constexpr (has_first(kMoments)) sums.template add<Plane::kMoment1>(first, i);
    if constexpr (has_second(kMoments)) sums.template add<Plane::kMoment2>(second, i);
  }

  T* first;
  T* second;
};

template <Moments kMoments>
struct Fp32Moments : MomentArrays<float, kMoments> {
  HWY_INLINE Fp32Moments(const PlanePointers& planes, const Dither&)
      : MomentArrays<float, kMoments>(planes) {}
  HWY_INLINE void load(std::size_t i, Floats& m_low, Floats& m_high, Floats& v_low, Floats& v_high) const {
    if constexpr (has_first(kMoments)) F32Format::load(this->first + i, m_low, m_high);
    if constexpr (has_second(kMoments)) F32Format::load(this->second + i, v_low, v_high);
  }
  template <class Sums>
  HWY_INLINE void store(std::size_t i, Floats m_low, Floats m_high, Floats v_low, Floats v_high,
                        Sums& written) const {
    if constexpr (has_first(kMoments)) {
      F32Format::store(this->first + i, m_low, m_high);
      written.template add<Plane::kMoment1>(this->first, i);
    }
    if constexpr (has_second(kMoments)) {
      F32Format::store(this->second + i, v_low, v_high);
      written.template add<Plane::kMoment2>(this->second, i);
    }
  }
};

/// Moments of a granule in a buffer on the stack, for which nothing is to be asked for.
template <Moments kMoments>
struct BufferedMoments : Fp32Moments<kMoments> {
  HWY_INLINE BufferedMoments(const PlanePointers& planes, const Dither& dither)
      : Fp32Moments<kMoments>(planes, dither) {}
  HWY_INLINE void prefetch(std::size_t) const {}
};

template <Moments kMoments>
struct Bf16Moments : MomentArrays<std::uint16_t, kMoments> {
  HWY_INLINE Bf16Moments(const PlanePointers& planes, const Dither& dither)
      : MomentArrays<std::uint16_t, kMoments>(planes), random(dither) {}
  HWY_INLINE void load(std::size_t i, Floats& m_low, Floats& m_high, Floats& v_low, Floats& v_high) const {
    if constexpr (has_first(kMoments)) Bf16Format::load(this->first + i, m_low, m_high);
    if constexpr (has_second(kMoments)) Bf16Format::load(this->second + i, v_low, v_high);
  }
  template <class Sums>
  HWY_INLINE void store(std::size_t i, Floats m_low, Floats m_high, Floats v_low, Floats v_high,
                        Sums& written) const {
    const Words low = random.at(i), high = random.at(i + hn::Lanes(F32()));
    if constexpr (has_first(kMoments)) {
      store_dithered(this->first + i, m_low, m_high, low, high);
      written.template add<Plane::kMoment1>(this->first, i);
    }
    if constexpr (has_second(kMoments)) {
      store_dithered(this->second + i, v_low, v_high, hn::ShiftRight<16>(low), hn::ShiftRight<16>(high));
      written.template add<Plane::kMoment2>(this->second, i);
    }
  }

  DitherLanes random;
};

/// All planes of a loop.
template <class Weights, class MomentPlanes>
struct LoopPlanes {
  static constexpr auto kPlanes = [] {
    std::array<ElementBytes, Weights::kPlanes.size() + MomentPlanes::kPlanes.size()> planes{};
    const auto moments = std::copy(Weights::kPlanes.begin(), Weights::kPlanes.end(), planes.begin());
    std::copy(MomentPlanes::kPlanes.begin(), MomentPlanes::kPlanes.end(), moments);
    return planes;
  }();
};

/// Copies of the last elements of each plane, fewer than a pair's, padded with zeros: a whole pair works on them, so that
/// tail and body agree by being one.
template <class Weights, class MomentPlanes>
class TailPlanes {
 public:
  TailPlanes(const PlanePointers& source, std::size_t first, std::size_t count)
      : source_(source), first_(first), count_(count) {
    each([&](std::size_t index, const ElementBytes& element, std::byte* begin) {
      at(planes_, element.plane) = room_[index];
      std::memcpy(room_[index], begin, count_ * element.bytes);
    });
  }
  const PlanePointers& planes() const { return planes_; }
  void copy_back() const {
    each([&](std::size_t index, const ElementBytes& element, std::byte* begin) {
      std::memcpy(begin, room_[index], count_ * element.bytes);
    });
  }

 private:
  /// Calls visit for each plane with its first element of the tail.
  template <class Visit>
  void each(const Visit& visit) const {
    std::size_t index = 0;
    for (const ElementBytes& element : LoopPlanes<Weights, MomentPlanes>::kPlanes)
      visit(index++, element, at(source_, element.plane) + first_ * element.bytes);
  }

  const PlanePointers& source_;
  const std::size_t first_, count_;
  PlanePointers planes_{};
  HWY_ALIGN std::byte room_[4][kPairLanesMax * sizeof(float)] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
