#include <benchmark/benchmark.h>

#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "kernels/constants.hpp"
#include "kernels/gradient.hpp"
#include "support/same_bytes.hpp"
#include "support/side_by_side.hpp"

namespace sluice::bench {
namespace {

using kernels::Accumulate;
using kernels::GradientDType;
using kernels::kGranuleElements;
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

struct Case {
  Way way;
  GradientDType source_type;
  Norm norm;
  Place place;

  std::size_t source_bytes() const { return source_type == GradientDType::kF32 ? 4 : 2; }
  std::size_t target_bytes() const { return way == Way::kStoreBf16 ? 2 : 4; }
  std::string name() const {
    return std::string("gradient/") + way_name(way) +
           (source_type == GradientDType::kF32 ? "/from_f32/" : "/from_bf16/") + place_name(place) +
           (norm == Norm::kOn ? "/norm" : "/plain");
  }
};

/// Zeros, and gradients of 2^-20 times 1, 2, 4 or 8: sums of thousands stay ordinary numbers.
void fill(const Case& of, std::byte* targets, std::byte* sources, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    const float value = std::ldexp(1.0f, static_cast<int>(i % 4) - 20);
    if (of.source_type == GradientDType::kF32) {
      reinterpret_cast<float*>(sources)[i] = value;
    } else {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      reinterpret_cast<std::uint16_t*>(sources)[i] = static_cast<std::uint16_t>(bits >> 16);
    }
    if (of.target_bytes() == 4) reinterpret_cast<float*>(targets)[i] = 0.0f;
  }
}

void bring_in(const Case& of, std::byte* target, const std::byte* source, kernels::NormDelta* delta) {
  if (of.way == Way::kStoreBf16) {
    kernels::store_bf16(reinterpret_cast<std::uint16_t*>(target), source, of.source_type, kTileElements,
                        delta);
  } else {
    kernels::accumulate_f32(reinterpret_cast<float*>(target), source, of.source_type, kTileElements,
                            of.way == Way::kAddF32 ? Accumulate::kAdd : Accumulate::kStore, delta);
  }
}

/// A contribution of one tile in fp32 or bf16, brought into its plane; out of cache over as many tiles as
/// there is room.
void gradient(benchmark::State& state, const Workplace& workplace, const Case& of) {
  const std::span<std::byte> room = workplace.arena.span();
  const std::size_t target_tile = kTileElements * of.target_bytes();
  const std::size_t source_tile = kTileElements * of.source_bytes();
  const std::size_t tiles = of.place == Place::kInCache ? 1 : room.size() / (source_tile + target_tile);
  std::byte* const targets = room.data();
  std::byte* const sources = room.data() + tiles * target_tile;
  fill(of, targets, sources, tiles * kTileElements);

  kernels::NormDelta delta;
  kernels::NormDelta* const delta_or_none = of.norm == Norm::kOn ? &delta : nullptr;
  const auto over_tiles = [&](const auto& visit) {
    for (std::size_t pass = 0; pass < workplace.passes(of.place); ++pass) {
      for (std::size_t tile = 0; tile < tiles; ++tile)
        visit(targets + tile * target_tile, sources + tile * source_tile);
    }
  };
  const auto kernel = [&](std::byte* target, const std::byte* source) {
    bring_in(of, target, source, delta_or_none);
  };
  const Access access = of.way == Way::kAddF32 ? Access::kRewrite : Access::kWrite;
  const auto loop = [&](std::byte* target, std::byte* source) {
    const std::array streams{Stream{source, kGranuleElements * of.source_bytes(), Access::kRead},
                             Stream{target, kGranuleElements * of.target_bytes(), access}};
    same_bytes(streams, kTileElements / kGranuleElements);
  };
  run_side_by_side(state, workplace,
                   {.kernel = [&](std::size_t) { over_tiles(kernel); },
                    .same_bytes = [&](std::size_t) { over_tiles(loop); },
                    .elements = static_cast<double>(tiles * kTileElements * workplace.passes(of.place)),
                    .bytes_per_element = static_cast<double>(
                        of.source_bytes() + of.target_bytes() * (access == Access::kRewrite ? 2 : 1))});
}

}  // namespace

void add_gradient_benchmarks(const Workplace& workplace) {
  for (const Place place : {Place::kInCache, Place::kOutOfCache}) {
    for (const Way way : {Way::kStoreF32, Way::kAddF32, Way::kStoreBf16}) {
      for (const GradientDType type : {GradientDType::kF32, GradientDType::kBF16}) {
        for (const Norm norm : {Norm::kOff, Norm::kOn}) {
          const Case of{way, type, norm, place};
          add_benchmark(of.name(), workplace,
                        [=, &workplace](benchmark::State& state) { gradient(state, workplace, of); });
        }
      }
    }
  }
}

}  // namespace sluice::bench
