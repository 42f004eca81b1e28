#include "kernels/update.hpp"

#include <algorithm>
#include <bit>
#include <variant>

#include "kernels/float_environment.hpp"
#include "kernels/isa.hpp"
#include "kernels/rules.hpp"
#include "kernels/stripes.hpp"

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

/// The planes that a run has, and how many bytes of each a piece is.
class PiecePlanes {
 public:
  struct OfPlane {
    std::size_t kind;
    PlaneFormat format;
    std::uint64_t piece_bytes;
    std::uint64_t bytes(std::size_t elements) const {
      return elements == kPieceElements ? piece_bytes : format.bytes(elements);
    }
  };

  explicit PiecePlanes(const Run& run) {
    for (std::size_t kind = 0; kind < kPlaneKinds; ++kind) {
      if (run.planes[kind] == nullptr) continue;
      const PlaneFormat format = plane_format(run.policy, static_cast<Plane>(kind));
      planes_[count_++] = {kind, format, format.bytes(kPieceElements)};
    }
  }
  std::span<const OfPlane> all() const { return {planes_.data(), count_}; }

  void feed(PlaneHashers* hashers, const Run& piece) const {
    if (hashers == nullptr) return;
    for (const OfPlane& plane : all())
      (*hashers)[plane.kind].update(piece.planes[plane.kind], plane.bytes(piece.elements));
  }
  void advance(PlanePointers& planes, std::size_t elements) const {
    for (const OfPlane& plane : all()) planes[plane.kind] += plane.bytes(elements);
  }

 private:
  std::array<OfPlane, kPlaneKinds> planes_;
  std::size_t count_ = 0;
};

/// How many elements from the run's first are hashed by whole stripes, of which one a plane at least stays behind for
/// what may follow.
std::size_t elements_by_stripes(const Run& run, const PiecePlanes& planes, const Hashing& hashing) {
  constexpr std::size_t kFewElements = 512;
  if (run.policy == Policy::kMoments8 || run.elements < kFewElements) return 0;
  for (const PlaneHashers* hashers : {hashing.read, hashing.written}) {
    if (hashers == nullptr) continue;
    for (const PiecePlanes::OfPlane& plane : planes.all()) {
      const std::size_t block_stripes = stripes_of(kBlockElements, dtype_bytes(plane.format.dtype));
      if (!(*hashers)[plane.kind].at_stripe(block_stripes)) return 0;
    }
  }
  return run.elements / kStripeElements * kStripeElements - kStripeElements;
}

/// Whether the rule's loop itself adds the stripes.
bool loop_adds_stripes(const Run& run, const Dither& dither) {
  if (isa_in_use() != Isa::kAvx512) return false;
  // Where the random bits' key changes a run is cut, which has to be between blocks.
  return run.policy != Policy::kBf16Moments || dither.first_element % kBlockElements == 0;
}

/// The sums of all planes' hashers, lent to a loop.
class LentSums {
 public:
  LentSums(PlaneHashers* hashers, const PiecePlanes& planes) : hashers_(hashers), planes_(planes) {
    if (hashers == nullptr) return;
    for (const PiecePlanes::OfPlane& plane : planes.all()) sums_[plane.kind] = (*hashers)[plane.kind].lend();
  }
  std::array<StripeSums, kPlaneKinds>* sums() { return hashers_ == nullptr ? nullptr : &sums_; }
  void add(const Run& piece) {
    if (hashers_ == nullptr) return;
    for (const PiecePlanes::OfPlane& plane : planes_.all())
      add_stripes(sums_[plane.kind], piece.planes[plane.kind],
                  plane.bytes(piece.elements) / StripeSums::kStripeBytes);
  }
  void take_back(std::size_t elements) {
    if (hashers_ == nullptr) return;
    for (const PiecePlanes::OfPlane& plane : planes_.all())
      (*hashers_)[plane.kind].take_back(sums_[plane.kind], plane.bytes(elements));
  }

 private:
  PlaneHashers* hashers_;
  const PiecePlanes& planes_;
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

  const PiecePlanes planes(run);
  const std::size_t gradient_bytes = run.gradient_plane == GradientPlane::kF32 ? 4 : 2;
  Run piece = run;
  Dither piece_dither = dither;
  std::size_t left = run.elements;
  const auto advance = [&] {
    planes.advance(piece.planes, piece.elements);
    piece.gradient += piece.elements * gradient_bytes;
    piece_dither.first_element += piece.elements;
    left -= piece.elements;
  };
  std::uint64_t overflows = 0;
  if (const std::size_t by_stripes = elements_by_stripes(run, planes, hashing); by_stripes != 0) {
    LentSums read(hashing.read, planes), written(hashing.written, planes);
    if (loop_adds_stripes(run, dither)) {
      piece.elements = by_stripes;
      overflows += step(piece, factors, piece_dither, {read.sums(), written.sums()});
      advance();
    } else {
      for (std::size_t ahead = by_stripes; ahead != 0; ahead -= piece.elements) {
        piece.elements = std::min(kPieceElements, ahead);
        read.add(piece);
        overflows += step(piece, factors, piece_dither, {});
        written.add(piece);
        advance();
      }
    }
    read.take_back(by_stripes);
    written.take_back(by_stripes);
  }
  while (left != 0) {
    piece.elements = std::min(kPieceElements, left);
    planes.feed(hashing.read, piece);
    overflows += step(piece, factors, piece_dither, {});
    planes.feed(hashing.written, piece);
    advance();
  }
  return overflows;
}

}  // namespace sluice::kernels
