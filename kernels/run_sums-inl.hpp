// XXH3's sums of the planes that a loop passes over, in registers: include inside a foreach_target source only.
#if defined(SLUICE_KERNELS_RUN_SUMS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_RUN_SUMS_INL_HPP_
#undef SLUICE_KERNELS_RUN_SUMS_INL_HPP_
#else
#define SLUICE_KERNELS_RUN_SUMS_INL_HPP_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/lanes-inl.hpp"
#include "kernels/rules.hpp"
#include "kernels/stripes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Where nothing is hashed.
struct NoSums {
  template <Plane kPlane, class T>
  HWY_INLINE void add(const T*, std::size_t) const {}
};

// Where vectors hold a stripe the sums of a plane are one register.
#ifdef SLUICE_KERNELS_AVX512

/// A plane's sums in a register.
class StripeSum {
 public:
  explicit HWY_INLINE StripeSum(const StripeSums& lent)
      : sum_(hn::Load(StripeWords(), lent.sums)), secret_(lent.secret), in_block_(lent.in_block) {}

  /// Adds kStripes stripes, the first of them number `stripe` after the last pass().
  template <std::size_t kStripes>
  HWY_INLINE void add(const void* source, std::size_t stripe) {
    auto straight = words_at(source, 0);
    for (std::size_t i = 0; i < kStripes; ++i) {
      const auto data = words_at(source, i * StripeSums::kStripeBytes);
      const auto key = words_at(secret_, (in_block_ + stripe + i) * kWordBytes);
      sum_ = hn::Add(sum_, half_product(hn::Xor(data, key)));
      if (i != 0) straight = hn::Add(straight, data);
    }
    // Neighbouring words change places, which their sums may as well.
    sum_ = hn::Add(sum_, hn::Shuffle01(straight));
  }

  /// Goes on after `stripes` stripes, which do not go beyond a block.
  HWY_INLINE void pass(std::size_t stripes) {
    in_block_ += stripes;
    if (in_block_ != StripeSums::kBlockStripes) return;
    in_block_ = 0;
    sum_ = scrambled(sum_, secret_, 0);
  }

  HWY_INLINE void give_back(StripeSums& lent) const {
    hn::Store(sum_, StripeWords(), lent.sums);
    lent.in_block = in_block_;
  }

 private:
  StripeVector sum_;
  const std::uint8_t* secret_;
  std::size_t in_block_;
};

/// The sums of Planes::kPlanes in registers while a run goes by, if any are lent.
template <class Planes>
class RunSums {
 public:
  using Lent = std::array<StripeSums, kPlaneKinds>;
  explicit HWY_INLINE RunSums(Lent* lent) : RunSums(lent, kIndices) {}

  /// Adds the pair from element i of a plane on. It has just been loaded or stored, so that the compiler takes it from the
  /// registers that hold it.
  template <Plane kPlane, class T>
  HWY_INLINE void add(const T* plane, std::size_t i) {
    constexpr std::size_t kStripes = stripes_of(kStripeElements, sizeof(T));
    if (lent_ == nullptr) return;
    sums_[index_of(kPlane)].template add<kStripes>(plane + i, stripes_of(i % kBlockElements, sizeof(T)));
  }
  /// Goes on after a block, or the part of one that ends the run.
  HWY_INLINE void pass(std::size_t elements) {
    if (lent_ == nullptr) return;
    each([&](std::size_t, std::size_t bytes, StripeSum& sum)
             HWY_ATTR { sum.pass(stripes_of(elements, bytes)); },
         kIndices);
  }
  HWY_INLINE void give_back() {
    if (lent_ == nullptr) return;
    each([&](std::size_t kind, std::size_t, StripeSum& sum) HWY_ATTR { sum.give_back((*lent_)[kind]); },
         kIndices);
  }

 private:
  static constexpr const auto& kPlanes = Planes::kPlanes;
  static constexpr auto kIndices = std::make_index_sequence<kPlanes.size()>();
  static constexpr std::size_t kind_of(std::size_t index) {
    return static_cast<std::size_t>(kPlanes[index].plane);
  }
  static constexpr std::size_t index_of(Plane plane) {
    std::size_t index = 0;
    while (kPlanes[index].plane != plane) ++index;
    return index;
  }

  template <std::size_t... kIndex>
  HWY_INLINE RunSums(Lent* lent, std::index_sequence<kIndex...>)
      : lent_(lent), sums_{StripeSum(lent == nullptr ? StripeSums{} : (*lent)[kind_of(kIndex)])...} {}

  template <class Visit, std::size_t... kIndex>
  HWY_INLINE void each(const Visit& visit, std::index_sequence<kIndex...>) {
    (visit(kind_of(kIndex), kPlanes[kIndex].bytes, sums_[kIndex]), ...);
  }

  Lent* const lent_;
  StripeSum sums_[kPlanes.size()];
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
