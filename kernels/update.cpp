#include "kernels/update.hpp"

#include <algorithm>
#include <bit>
#include <variant>

#include "kernels/float_environment.hpp"
#include "kernels/isa.hpp"
#include "kernels/rules.hpp"

namespace sluice::kernels {
namespace {

/// By index in Optimizer.
constexpr std::array<const UpdateRule*, 5> kRules = {&kAdamWRule, &kAdamRule, &kAdagradRule, &kLionRule,
                                                     &kSgdRule};
static_assert(kRules.size() == std::variant_size_v<Optimizer>);

/// Elements that are hashed and updated by turns: as many as are asked for ahead, so that the bytes to come
/// arrive while these are hashed. Both, 12 KiB of planes and gradient each, fit a first-level cache of 32
/// KiB; XXH3 is slower on pieces of 1 KiB or less.
constexpr std::size_t kPieceElements = 768;
static_assert(kPieceElements % kGranuleElements == 0);

/// The planes that a run has, without an allocation.
class RunFormats {
 public:
  explicit RunFormats(const Run& run) {
    for (std::size_t plane = 0; plane < kPlaneKinds; ++plane)
      if (run.planes[plane] != nullptr)
        formats_[count_++] = plane_format(run.policy, static_cast<Plane>(plane));
  }
  std::span<const PlaneFormat> all() const { return {formats_.data(), count_}; }

 private:
  std::array<PlaneFormat, kPlaneKinds> formats_;
  std::size_t count_ = 0;
};

/// Whether the loop can hash the run's whole stripes itself, but for the last ones, which wait for what may follow.
bool adds_stripes(const Run& run, std::span<const PlaneFormat> formats, const Dither& dither,
                  const Hashing& hashing) {
  constexpr std::size_t kFewElements = 512;
  if (isa_in_use() != Isa::kAvx512 || run.policy == Policy::kMoments8 || run.elements < kFewElements)
    return false;
  // Where the random bits' key changes a run is cut, and both parts have to be whole stripes.
  if (run.policy == Policy::kBf16Moments && dither.first_element % kStripeElements != 0) return false;
  for (const PlaneHashers* hashers : {hashing.read, hashing.written}) {
    if (hashers == nullptr) continue;
    for (const PlaneFormat& format : formats) {
      const PlaneHashers& of = *hashers;
      if (!of[static_cast<std::size_t>(format.plane)].at_stripe(stripes_of(dtype_bytes(format.dtype))))
        return false;
    }
  }
  return true;
}

/// The sums of all planes' hashers, lent to a loop.
class LentSums {
 public:
  LentSums(PlaneHashers* hashers, std::span<const PlaneFormat> formats)
      : hashers_(hashers), formats_(formats) {
    if (hashers == nullptr) return;
    for (const PlaneFormat& format : formats) {
      const auto plane = static_cast<std::size_t>(format.plane);
      sums_[plane] = (*hashers)[plane].lend();
    }
  }
  std::array<StripeSums, kPlaneKinds>* sums() { return hashers_ == nullptr ? nullptr : &sums_; }
  void take_back(std::size_t elements) {
    if (hashers_ == nullptr) return;
    for (const PlaneFormat& format : formats_) {
      const auto plane = static_cast<std::size_t>(format.plane);
      (*hashers_)[plane].take_back(sums_[plane], format.bytes(elements));
    }
  }

 private:
  PlaneHashers* hashers_;
  std::span<const PlaneFormat> formats_;
  std::array<StripeSums, kPlaneKinds> sums_;
};

}  // namespace

Factors make_factors(const Optimizer& optimizer, std::uint64_t step_count, double gradient_factor) {
  const DefaultFloatEnvironment environment;
  Factors factors{.rule = static_cast<std::uint32_t>(optimizer.index()),
                  .gradient = static_cast<float>(gradient_factor)};
  kRules[optimizer.index()]->set_numbers(factors, optimizer, static_cast<double>(step_count));
  return factors;
}

std::uint64_t dither_key(std::uint64_t seed, std::string_view parameter, std::uint64_t step_count) {
  static_assert(std::endian::native == std::endian::little, "the words are hashed as they lie in memory");
  const std::uint64_t words[] = {seed, hash_bytes(parameter.data(), parameter.size()), step_count};
  return hash_bytes(words, sizeof words);
}

void hash_planes(PlaneHashers& hashers, std::span<const PlaneFormat> formats, const PlanePointers& planes,
                 const Elements& elements) {
  for (const PlaneFormat& format : formats) {
    const std::uint64_t begin = format.bytes(elements.first),
                        end = format.bytes(elements.first + elements.count);
    hashers[static_cast<std::size_t>(format.plane)].update(at(planes, format.plane) + begin, end - begin);
  }
}

std::uint64_t update(const Run& run, const Factors& factors, const Dither& dither, const Hashing& hashing) {
  const DefaultFloatEnvironment environment;
  const auto step = kRules[factors.rule]->update;
  if (hashing.read == nullptr && hashing.written == nullptr) return step(run, factors, dither, {});

  const RunFormats formats(run);
  const std::size_t gradient_bytes = run.gradient_plane == GradientPlane::kF32 ? 4 : 2;
  std::uint64_t overflows = 0;
  // Half of kStripeElements stay behind: a stripe of each plane.
  const std::size_t fused_elements =
      adds_stripes(run, formats.all(), dither, hashing)
          ? (run.elements - kStripeElements / 2) / kStripeElements * kStripeElements
          : 0;
  if (fused_elements != 0) {
    Run head = run;
    head.elements = fused_elements;
    LentSums read(hashing.read, formats.all()), written(hashing.written, formats.all());
    overflows += step(head, factors, dither, {read.sums(), written.sums()});
    read.take_back(fused_elements);
    written.take_back(fused_elements);
  }
  for (std::size_t begin = fused_elements; begin < run.elements; begin += kPieceElements) {
    Run piece = run;
    piece.planes = planes_from(run.planes, formats.all(), begin);
    piece.gradient = run.gradient + begin * gradient_bytes;
    piece.elements = std::min(kPieceElements, run.elements - begin);
    const Elements elements{begin, piece.elements};
    if (hashing.read != nullptr) hash_planes(*hashing.read, formats.all(), run.planes, elements);
    overflows += step(piece, factors, {dither.key, dither.first_element + begin}, {});
    if (hashing.written != nullptr) hash_planes(*hashing.written, formats.all(), run.planes, elements);
  }
  return overflows;
}

}  // namespace sluice::kernels
