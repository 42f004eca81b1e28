#include <benchmark/benchmark.h>

#include <bit>
#include <cmath>
#include <string>

#include "kernels/constants.hpp"
#include "kernels/gradient.hpp"
#include "same_bytes.hpp"
#include "side_by_side.hpp"
#include "workplace.hpp"

namespace sluice::bench {
namespace {

using kernels::Accumulate;
using kernels::GradientDType;
using kernels::kTileElements;

enum class Way { kStoreF32, kAddF32, kStoreBf16 };
enum class Norm { kOff, kOn };

const char* way_name(Way way) {
  switch (way) {
    case Way::kStoreF32:
      return "store_f32";
    case Way::kAddF32:
      return "add_f32";
    case Way::kStoreBf16:
      return "store_bf16";
  }
  return "";
}

/// A contribution of one tile in fp32 or bf16, brought into its plane; out of cache over as many tiles as
/// there is room.
void gradient(benchmark::State& state, Way way, GradientDType source_type, Norm norm, Place place) {
  const std::size_t source_bytes = source_type == GradientDType::kF32 ? 4 : 2;
  const std::size_t target_bytes = way == Way::kStoreBf16 ? 2 : 4;
  const bool in_cache = place == Place::kInCache;
  static const Arena small_arena(std::size_t{2} << 20);
  const Arena& arena = in_cache ? small_arena : big_arena();
  const std::size_t tiles = in_cache ? 1 : arena.bytes() / (kTileElements * (source_bytes + target_bytes));
  const std::size_t passes = in_cache ? 5000 : 1;
  std::uint8_t* targets = arena.data();
  std::uint8_t* sources = arena.data() + tiles * kTileElements * target_bytes;
  for (std::size_t i = 0; i < tiles * kTileElements; ++i) {
    // 2^-20 times 1, 2, 4 or 8: sums of thousands stay ordinary numbers.
    const float value = std::ldexp(1.0f, static_cast<int>(i % 4) - 20);
    if (source_bytes == 4) {
      reinterpret_cast<float*>(sources)[i] = value;
    } else {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      reinterpret_cast<std::uint16_t*>(sources)[i] = static_cast<std::uint16_t>(bits >> 16);
    }
    if (target_bytes == 4) reinterpret_cast<float*>(targets)[i] = 0.0f;
  }

  kernels::NormDelta delta;
  kernels::NormDelta* const delta_or_none = norm == Norm::kOn ? &delta : nullptr;
  const auto over_tiles = [&](const auto& visit) {
    for (std::size_t pass = 0; pass < passes; ++pass) {
      for (std::size_t tile = 0; tile < tiles; ++tile) {
        visit(targets + tile * kTileElements * target_bytes, sources + tile * kTileElements * source_bytes);
      }
    }
  };
  const double elements = static_cast<double>(tiles * kTileElements * passes);
  const double moved_bytes = static_cast<double>(source_bytes + target_bytes * (way == Way::kAddF32 ? 2 : 1));
  run_side_by_side(
      state, {.kernel =
                  [&](std::size_t) {
                    over_tiles([&](std::uint8_t* target, const std::uint8_t* source) {
                      if (way == Way::kStoreBf16) {
                        kernels::store_bf16(reinterpret_cast<std::uint16_t*>(target), source, source_type,
                                            kTileElements, delta_or_none);
                      } else {
                        kernels::accumulate_f32(
                            reinterpret_cast<float*>(target), source, source_type, kTileElements,
                            way == Way::kAddF32 ? Accumulate::kAdd : Accumulate::kStore, delta_or_none);
                      }
                    });
                  },
              .same_bytes =
                  [&](std::size_t) {
                    over_tiles([&](std::uint8_t* target, const std::uint8_t* source) {
                      if (way == Way::kAddF32) {
                        same_bytes_add(reinterpret_cast<float*>(target), source, source_bytes, kTileElements);
                      } else {
                        same_bytes_store(target, target_bytes, source, source_bytes, kTileElements);
                      }
                    });
                  },
              .threads = 1,
              .elements = elements,
              .bytes = elements * moved_bytes});
}

}  // namespace

void add_gradient_benchmarks() {
  for (const Place place : {Place::kInCache, Place::kOutOfCache}) {
    for (const Way way : {Way::kStoreF32, Way::kAddF32, Way::kStoreBf16}) {
      for (const GradientDType type : {GradientDType::kF32, GradientDType::kBF16}) {
        for (const Norm norm : {Norm::kOff, Norm::kOn}) {
          const std::string name = std::string("gradient/") + way_name(way) +
                                   (type == GradientDType::kF32 ? "/from_f32/" : "/from_bf16/") +
                                   place_name(place) + (norm == Norm::kOn ? "/norm" : "/plain");
          benchmark::RegisterBenchmark(
              name.c_str(), [=](benchmark::State& state) { gradient(state, way, type, norm, place); })
              ->Iterations(7)
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace sluice::bench
