// Checksums taken by an update: those of the planes before and after, and no effect on the update.
#include <random>
#include <vector>

#include "adamw_planes.hpp"
#include "each_isa.hpp"
#include "kernels/constants.hpp"
#include "kernels/tile_hash.hpp"

namespace sluice::kernels {
namespace {

class AdamWHashing : public OnEachIsa {};
SLUICE_ON_EACH_ISA(AdamWHashing);

template <class T>
std::uint64_t hash_of(const std::vector<T>& plane) {
  return hash_bytes(plane.data(), plane.size() * sizeof(T));
}

/// The planes of a tile of several parameters, each with a count of steps of its own.
struct Tile {
  explicit Tile(std::uint64_t seed) : random(seed) {
    const std::size_t n = 1 + random() % kTileElements;
    std::normal_distribution<float> normal;
    masters.resize(n), moment1.resize(n), moment2.resize(n), gradient.resize(n), weight.resize(n),
        residual.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      masters[i] = normal(random), moment1[i] = normal(random), moment2[i] = std::fabs(normal(random));
      gradient[i] = normal(random);
    }
    split_bf16(weight.data(), residual.data(), masters.data(), n);
    for (std::size_t begin = 0; begin < n;) {
      segments.push_back(std::min<std::size_t>(1 + random() % 5000, n - begin));
      begin += segments.back();
    }
  }

  /// Calls update(first element, count, factors) for every segment in order.
  template <class Update>
  void each_segment(const Update& update) const {
    std::size_t begin = 0;
    for (const std::size_t count : segments) {
      update(begin, count, make_factors(sluice::AdamW{}, 1 + begin % 7, 1.0));
      begin += count;
    }
  }

  std::mt19937_64 random;
  std::vector<float> masters, moment1, moment2, gradient;
  std::vector<std::uint16_t> weight;
  std::vector<std::int16_t> residual;
  std::vector<std::size_t> segments;
};

TEST_P(AdamWHashing, OfBf16SplitGivesTheTilesHashesBeforeAndAfter) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const Tile before(seed);
    Tile hashed = before, plain = before;
    PlaneHashers read, written;
    before.each_segment([&](std::size_t begin, std::size_t count, const Factors& factors) {
      const auto update_tile = [&](Tile& tile, const Hashing& hashing) {
        update_planes(Policy::kBf16Split,
                      {{Plane::kWeight, tile.weight.data() + begin},
                       {Plane::kResidual, tile.residual.data() + begin},
                       {Plane::kMoment1, tile.moment1.data() + begin},
                       {Plane::kMoment2, tile.moment2.data() + begin}},
                      before.gradient.data() + begin, GradientPlane::kF32, count, factors, hashing);
      };
      update_tile(plain, {});
      update_tile(hashed, {.read = &read, .written = &written});
    });
    EXPECT_EQ(hashed.weight, plain.weight);
    EXPECT_EQ(hashed.residual, plain.residual);
    EXPECT_EQ(hashed.moment1, plain.moment1);
    EXPECT_EQ(hashed.moment2, plain.moment2);
    EXPECT_EQ(read[static_cast<std::size_t>(Plane::kWeight)].digest(), hash_of(before.weight));
    EXPECT_EQ(read[static_cast<std::size_t>(Plane::kResidual)].digest(), hash_of(before.residual));
    EXPECT_EQ(read[static_cast<std::size_t>(Plane::kMoment1)].digest(), hash_of(before.moment1));
    EXPECT_EQ(read[static_cast<std::size_t>(Plane::kMoment2)].digest(), hash_of(before.moment2));
    EXPECT_EQ(written[static_cast<std::size_t>(Plane::kWeight)].digest(), hash_of(plain.weight));
    EXPECT_EQ(written[static_cast<std::size_t>(Plane::kResidual)].digest(), hash_of(plain.residual));
    EXPECT_EQ(written[static_cast<std::size_t>(Plane::kMoment1)].digest(), hash_of(plain.moment1));
    EXPECT_EQ(written[static_cast<std::size_t>(Plane::kMoment2)].digest(), hash_of(plain.moment2));
  }
}

TEST_P(AdamWHashing, OfFp32GivesTheTilesHashesBeforeAndAfter) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const Tile before(seed);
    Tile after = before;
    std::vector<std::uint16_t> gradient(before.gradient.size());
    f32_to_bf16(gradient.data(), before.gradient.data(), gradient.size());
    PlaneHashers read, written;
    before.each_segment([&](std::size_t begin, std::size_t count, const Factors& factors) {
      update_planes(Policy::kFp32,
                    {{Plane::kWeight, after.masters.data() + begin},
                     {Plane::kMoment1, after.moment1.data() + begin},
                     {Plane::kMoment2, after.moment2.data() + begin}},
                    gradient.data() + begin, GradientPlane::kBF16, count, factors,
                    {.read = &read, .written = &written});
    });
    EXPECT_NE(after.masters, before.masters);
    EXPECT_EQ(read[static_cast<std::size_t>(Plane::kWeight)].digest(), hash_of(before.masters));
    EXPECT_EQ(read[static_cast<std::size_t>(Plane::kMoment1)].digest(), hash_of(before.moment1));
    EXPECT_EQ(read[static_cast<std::size_t>(Plane::kMoment2)].digest(), hash_of(before.moment2));
    EXPECT_EQ(written[static_cast<std::size_t>(Plane::kWeight)].digest(), hash_of(after.masters));
    EXPECT_EQ(written[static_cast<std::size_t>(Plane::kMoment1)].digest(), hash_of(after.moment1));
    EXPECT_EQ(written[static_cast<std::size_t>(Plane::kMoment2)].digest(), hash_of(after.moment2));
  }
}

TEST_P(AdamWHashing, OfWeightsThatAnLrOfZeroLeavesIsTheSameTwice) {
  Tile tile(3);
  PlaneHashers read, written;
  update_planes(Policy::kBf16Split,
                {{Plane::kWeight, tile.weight.data()},
                 {Plane::kResidual, tile.residual.data()},
                 {Plane::kMoment1, tile.moment1.data()},
                 {Plane::kMoment2, tile.moment2.data()}},
                tile.gradient.data(), GradientPlane::kF32, tile.weight.size(),
                make_factors(sluice::AdamW{.lr = 0.0}, 2, 1.0), {.read = &read, .written = &written});
  EXPECT_EQ(read[static_cast<std::size_t>(Plane::kWeight)].digest(),
            written[static_cast<std::size_t>(Plane::kWeight)].digest());
  EXPECT_EQ(read[static_cast<std::size_t>(Plane::kResidual)].digest(),
            written[static_cast<std::size_t>(Plane::kResidual)].digest());
  EXPECT_NE(read[static_cast<std::size_t>(Plane::kMoment1)].digest(),
            written[static_cast<std::size_t>(Plane::kMoment1)].digest());
}

}  // namespace
}  // namespace sluice::kernels
