// Checksums taken by an update: those of the planes before and after, and no effect on the update.
#include <random>
#include <vector>

#include "each_isa.hpp"
#include "kernels/tile_hash.hpp"
#include "update_cases.hpp"

namespace sluice::kernels {
namespace {

class UpdateHashing : public OnEachIsa {};
SLUICE_ON_EACH_ISA(UpdateHashing);

/// A run of one parameter in a tile; the next one starts on a granule.
struct Segment {
  Elements elements;
  bool stepped;
};

std::vector<Segment> random_segments(std::mt19937_64& random, std::size_t tile_elements) {
  std::vector<Segment> segments;
  for (std::size_t begin = 0; begin < tile_elements;) {
    const std::size_t count = std::min<std::size_t>(1 + random() % 3000, tile_elements - begin);
    segments.push_back({{begin, count}, random() % 4 != 0});
    begin = (begin + count + kGranuleElements - 1) / kGranuleElements * kGranuleElements;
  }
  return segments;
}

/// Updates a tile's segments in order, feeding what is between them to the hashers.
void update_tile(Planes& planes, const UpdateCase& each, const std::vector<Segment>& segments,
                 const std::vector<float>& gradient, const Hashing& hashing) {
  std::size_t position = 0;
  const auto keep_until = [&](std::size_t end) {
    for (PlaneHashers* hashers : {hashing.read, hashing.written})
      if (hashers != nullptr)
        hash_planes(*hashers, planes.formats, planes.pointers(), {position, end - position});
    position = end;
  };
  for (const Segment& segment : segments) {
    if (!segment.stepped) continue;
    keep_until(segment.elements.first);
    update({.policy = each.policy,
            .planes = planes_from(planes.pointers(), planes.formats, position),
            .gradient = reinterpret_cast<const std::byte*>(gradient.data() + position),
            .elements = segment.elements.count},
           make_factors(each.optimizer, 1 + position % 7, 1.0), {.key = 1, .first_element = position},
           hashing);
    position += segment.elements.count;
  }
  keep_until(gradient.size());
}

void expect_digests(const PlaneHashers& hashers, const Planes& planes) {
  for (const PlaneFormat& format : planes.formats) {
    const auto plane = static_cast<std::size_t>(format.plane);
    EXPECT_EQ(hashers[plane].digest(), hash_bytes(planes.bytes[plane].data(), planes.bytes[plane].size()))
        << plane_name(format.plane);
  }
}

TEST_P(UpdateHashing, GivesTheTilesHashesBeforeAndAfter) {
  for (const UpdateCase& each : every_case()) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(testing::Message() << each.name << ", seed " << seed);
      std::mt19937_64 random(seed);
      const std::size_t n = kGranuleElements * (1 + random() % (kTileElements / kGranuleElements));
      Planes before(each.policy, each.optimizer, n);
      before.store(elements_of(random, n, &ordinary_float));
      const std::vector<float> gradient = floats_of(random, n, &ordinary_float);
      const std::vector<Segment> segments = random_segments(random, n);

      Planes hashed = before, plain = before;
      PlaneHashers read, written;
      update_tile(plain, each, segments, gradient, {});
      update_tile(hashed, each, segments, gradient, {.read = &read, .written = &written});
      EXPECT_EQ(hashed.bytes, plain.bytes);
      expect_digests(read, before);
      expect_digests(written, plain);
    }
  }
}

TEST_P(UpdateHashing, OfOneSideAloneIsRightWhateverStripesLeaveOver) {
  std::mt19937_64 random(4);
  for (const UpdateCase& each : every_case()) {
    // Every number of elements that whole stripes leave over.
    for (std::size_t n = 1984; n <= 2049; n += each.policy == Policy::kMoments8 ? 64 : 1) {
      SCOPED_TRACE(testing::Message() << each.name << ", " << n << " elements");
      Planes before(each.policy, each.optimizer, n);
      before.store(elements_of(random, n, &ordinary_float));
      const std::vector<float> gradient = floats_of(random, n, &ordinary_float);
      const Factors factors = make_factors(each.optimizer, 2, 1.0);
      Planes first = before, second = before;
      PlaneHashers read, written;
      update_planes(first, each.policy, gradient, factors, {}, {.read = &read});
      update_planes(second, each.policy, gradient, factors, {}, {.written = &written});
      EXPECT_EQ(first.bytes, second.bytes);
      expect_digests(read, before);
      expect_digests(written, first);
    }
  }
}

TEST_P(UpdateHashing, IsRightWhereverInABlockOfStripesARunStarts) {
  std::mt19937_64 random(5);
  constexpr std::size_t kElements = 1500;
  for (const UpdateCase& each : every_case()) {
    if (each.policy == Policy::kMoments8) continue;
    for (const std::size_t start : {1, 32, 64, 128, 224, 256, 288, 512, 768}) {
      SCOPED_TRACE(testing::Message() << each.name << " from element " << start);
      Planes before(each.policy, each.optimizer, kElements);
      before.store(elements_of(random, kElements, &any_float));
      const std::vector<float> gradient = floats_of(random, kElements, &any_float);
      const std::vector<Segment> rest = {{{start, kElements - start}, true}};
      Planes hashed = before, plain = before;
      PlaneHashers read, written;
      update_tile(plain, each, rest, gradient, {});
      update_tile(hashed, each, rest, gradient, {.read = &read, .written = &written});
      EXPECT_EQ(hashed.bytes, plain.bytes);
      expect_digests(read, before);
      expect_digests(written, plain);
    }
  }
}

TEST_P(UpdateHashing, OfWeightsThatAnLrOfZeroLeavesIsTheSameTwice) {
  std::mt19937_64 random(3);
  for (const UpdateCase& each : every_case()) {
    SCOPED_TRACE(each.name);
    const Optimizer resting = with_lr(each.optimizer, 0);
    Planes planes(each.policy, resting, 1000);
    planes.store(elements_of(random, 1000, &ordinary_float));
    PlaneHashers read, written;
    update_planes(planes, each.policy, floats_of(random, 1000, &ordinary_float),
                  make_factors(resting, 2, 1.0), {}, {.read = &read, .written = &written});
    for (const PlaneFormat& format : planes.formats) {
      const auto plane = static_cast<std::size_t>(format.plane);
      const bool moves = format.plane == Plane::kMoment1 || format.plane == Plane::kMoment2;
      if (moves) {
        EXPECT_NE(read[plane].digest(), written[plane].digest());
      } else if (format.elements_per_value == 1) {
        EXPECT_EQ(read[plane].digest(), written[plane].digest());
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
