#include "kernels/tile_hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <random>
#include <vector>

#include "each_isa.hpp"
#include "guarded.hpp"
#include "kernels/constants.hpp"

namespace sluice::kernels {
namespace {

class TileHash : public OnEachIsa {};
SLUICE_ON_EACH_ISA(TileHash);

std::vector<std::uint8_t> random_bytes(std::mt19937_64& random, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

TEST_P(TileHash, OfNothingIsThePublishedValue) { EXPECT_EQ(hash_bytes(nullptr, 0), 0x2D06800538D394C2u); }

TEST_P(TileHash, EqualsTheReferenceAtEveryLengthAndAlignment) {
  std::mt19937_64 random(1);
  for (std::size_t bytes = 0; bytes <= 2400; ++bytes) {
    SCOPED_TRACE(bytes);
    const std::vector<std::uint8_t> data = random_bytes(random, bytes);
    Guarded<std::uint8_t> guarded(data, bytes % 3);
    EXPECT_EQ(hash_bytes(guarded.data(), bytes), XXH3_64bits(data.data(), bytes));
  }
}

TEST_P(TileHash, EqualsTheReferenceOnTilesOfEveryElementSize) {
  std::mt19937_64 random(2);
  for (const std::size_t element_bytes : {1u, 2u, 4u}) {
    const std::vector<std::uint8_t> tile = random_bytes(random, kTileElements * element_bytes);
    EXPECT_EQ(hash_bytes(tile.data(), tile.size()), XXH3_64bits(tile.data(), tile.size()));
  }
}

TEST_P(TileHash, OfAPlaneIsTheHashOfItsTileHashesInLittleEndian) {
  std::mt19937_64 random(3);
  for (const std::size_t tiles : {0u, 1u, 2u, 64u, 257u}) {
    std::vector<std::uint64_t> hashes(tiles);
    std::vector<std::uint8_t> bytes;
    for (std::uint64_t& hash : hashes) {
      hash = random();
      for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<std::uint8_t>(hash >> shift));
    }
    EXPECT_EQ(plane_hash(hashes.data(), tiles), XXH3_64bits(bytes.data(), bytes.size()));
  }
}

TEST_P(TileHash, InPiecesEqualsTheWhole) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::vector<std::uint8_t> data = random_bytes(random, random() % 20000);
    Hasher hasher;
    for (std::size_t done = 0; done < data.size();) {
      const std::size_t piece = std::min<std::size_t>(random() % (seed * 40), data.size() - done);
      hasher.update(data.data() + done, piece);
      done += piece;
      EXPECT_EQ(hasher.digest(), hash_bytes(data.data(), done));
    }
    EXPECT_EQ(hasher.digest(), hash_bytes(data.data(), data.size()));
  }
}

TEST_P(TileHash, ACopyOfAHasherGoesOnFromTheSameBytes) {
  std::mt19937_64 random(5);
  const std::vector<std::uint8_t> data = random_bytes(random, 5000);
  Hasher first;
  first.update(data.data(), 3000);
  Hasher second = first;
  first.update(data.data(), 10);
  second.update(data.data() + 3000, 2000);
  EXPECT_EQ(second.digest(), hash_bytes(data.data(), 5000));
}

TEST(HasherAcrossTargets, MayChangeTargetBetweenPieces) {
  std::mt19937_64 random(6);
  const std::vector<std::uint8_t> data = random_bytes(random, 40000);
  const std::vector<Isa> isas = isas_available();
  Hasher hasher;
  for (std::size_t i = 0; i < 40; ++i) {
    force_isa_for_test(isas[i % isas.size()]);
    hasher.update(data.data() + 1000 * i, 1000);
  }
  force_isa_for_test({});
  EXPECT_EQ(hasher.digest(), XXH3_64bits(data.data(), data.size()));
}

}  // namespace
}  // namespace sluice::kernels
