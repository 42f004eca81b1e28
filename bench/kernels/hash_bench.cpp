#include <benchmark/benchmark.h>

#include <string>

#include "kernels/constants.hpp"
#include "kernels/tile_hash.hpp"
#include "same_bytes.hpp"
#include "side_by_side.hpp"
#include "workplace.hpp"

namespace sluice::bench {
namespace {

constexpr std::size_t kTileBytes = kernels::kTileElements * sizeof(float);

/// Hashing tiles of a four-byte plane beside a loop that only reads them.
void hash(benchmark::State& state, Place place) {
  const bool in_cache = place == Place::kInCache;
  static const Arena small_arena(std::size_t{2} << 20);
  const Arena& arena = in_cache ? small_arena : big_arena();
  const std::size_t tiles = in_cache ? 1 : arena.bytes() / kTileBytes;
  const std::size_t passes = in_cache ? 10000 : 1;
  const auto over_tiles = [&](const auto& visit) {
    for (std::size_t pass = 0; pass < passes; ++pass) {
      for (std::size_t tile = 0; tile < tiles; ++tile) visit(arena.data() + tile * kTileBytes);
    }
  };
  const double bytes = static_cast<double>(tiles * kTileBytes * passes);
  run_side_by_side(state,
                   {.kernel =
                        [&](std::size_t) {
                          over_tiles([](const std::uint8_t* tile) {
                            benchmark::DoNotOptimize(kernels::hash_bytes(tile, kTileBytes));
                          });
                        },
                    .same_bytes =
                        [&](std::size_t) {
                          over_tiles([](const std::uint8_t* tile) { same_bytes_read(tile, kTileBytes); });
                        },
                    .threads = 1,
                    .elements = bytes / sizeof(float),
                    .bytes = bytes});
}

}  // namespace

void add_hash_benchmarks() {
  for (const Place place : {Place::kInCache, Place::kOutOfCache}) {
    benchmark::RegisterBenchmark(("hash/" + place_name(place)).c_str(),
                                 [=](benchmark::State& state) { hash(state, place); })
        ->Iterations(7)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace sluice::bench
