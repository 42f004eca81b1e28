#include <benchmark/benchmark.h>

#include <array>
#include <string>

#include "kernels/constants.hpp"
#include "kernels/tile_hash.hpp"
#include "support/same_bytes.hpp"
#include "support/side_by_side.hpp"

namespace sluice::bench {
namespace {

using kernels::kGranuleElements;
using kernels::kTileElements;

constexpr std::size_t kTileBytes = kTileElements * sizeof(float);

/// Hashing tiles of a four-byte plane beside a loop that only reads them.
void hash(benchmark::State& state, const Workplace& workplace, Place place) {
  std::byte* const data = workplace.arena.span().data();
  const std::size_t tiles = place == Place::kInCache ? 1 : workplace.arena.span().size() / kTileBytes;
  const auto over_tiles = [&](const auto& visit) {
    for (std::size_t pass = 0; pass < workplace.passes(place); ++pass) {
      for (std::size_t tile = 0; tile < tiles; ++tile) visit(data + tile * kTileBytes);
    }
  };
  const auto hash_tile = [](const std::byte* tile) {
    benchmark::DoNotOptimize(kernels::hash_bytes(tile, kTileBytes));
  };
  const auto read_tile = [](std::byte* tile) {
    const std::array streams{Stream{tile, kGranuleElements * sizeof(float), Access::kRead}};
    same_bytes(streams, kTileElements / kGranuleElements);
  };
  run_side_by_side(state, workplace,
                   {.kernel = [&](std::size_t) { over_tiles(hash_tile); },
                    .same_bytes = [&](std::size_t) { over_tiles(read_tile); },
                    .elements = static_cast<double>(tiles * kTileElements * workplace.passes(place)),
                    .bytes_per_element = sizeof(float)});
}

}  // namespace

void add_hash_benchmarks(const Workplace& workplace) {
  for (const Place place : {Place::kInCache, Place::kOutOfCache}) {
    add_benchmark("hash/" + place_name(place), workplace,
                  [=, &workplace](benchmark::State& state) { hash(state, workplace, place); });
  }
}

}  // namespace sluice::bench
