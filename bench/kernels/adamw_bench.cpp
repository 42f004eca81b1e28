#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "arena.hpp"
#include "kernels/constants.hpp"
#include "kernels/convert.hpp"
#include "kernels/update.hpp"
#include "same_bytes.hpp"
#include "side_by_side.hpp"
#include "workplace.hpp"

namespace sluice::bench {
namespace {

using kernels::Factors;
using kernels::GradientPlane;
using kernels::kTileElements;

/// What is hashed tile by tile: nothing, the planes as written, or the planes as read and as written.
enum class Hashing { kPlain, kHashed, kVerified };

const char* hashing_name(Hashing hashing) {
  switch (hashing) {
    case Hashing::kPlain:
      return "plain";
    case Hashing::kHashed:
      return "hashed";
    case Hashing::kVerified:
      return "verified_and_hashed";
  }
  return "";
}

/// A chunk's planes side by side: 12 bytes an element of state, then the gradient.
struct Bf16SplitPolicy {
  static constexpr const char* kName = "bf16_split";
  static constexpr Policy kPolicy = Policy::kBf16Split;
  static constexpr auto same_bytes = &same_bytes_bf16_split;
};

struct Fp32Policy {
  static constexpr const char* kName = "fp32";
  static constexpr Policy kPolicy = Policy::kFp32;
  static constexpr auto same_bytes = &same_bytes_fp32;
};

template <class Policy>
kernels::PlanePointers planes_at(std::uint8_t* chunk, std::size_t chunk_elements, std::size_t first) {
  kernels::PlanePointers planes{};
  auto* plane = reinterpret_cast<std::byte*>(chunk);
  for (const kernels::PlaneFormat& format : kernels::planes_of(Policy::kPolicy, AdamW{}, DType::kF32)) {
    kernels::at(planes, format.plane) = plane + format.bytes(first);
    plane += format.bytes(chunk_elements);
  }
  return planes;
}

constexpr std::size_t kStateBytes = 12;

struct Layout {
  std::uint8_t* base;
  std::size_t chunks;          // of all threads
  std::size_t chunk_elements;  // a multiple of a tile
  std::size_t gradient_bytes;  // an element
  std::size_t passes;          // over the chunks, to make a measurable time

  std::uint8_t* chunk(std::size_t index) const {
    return base + index * chunk_elements * (kStateBytes + gradient_bytes);
  }
  std::uint8_t* gradient(std::size_t index, std::size_t first) const {
    return chunk(index) + chunk_elements * kStateBytes + first * gradient_bytes;
  }
};

/// Ordinary training numbers: nothing denormal, nothing that a thousand small steps could bring to overflow.
template <class Policy>
void fill(const Layout& layout, GradientPlane type) {
  std::vector<float> gradient(layout.chunk_elements), weight(layout.chunk_elements);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto scattered = static_cast<std::uint32_t>(i * 2654435761u);
    gradient[i] = 1e-2f * (static_cast<float>(scattered >> 8) * 0x1p-24f - 0.5f) + 1e-5f;
    weight[i] = 3.0f * gradient[i] + 0.1f;
  }
  for (std::size_t c = 0; c < layout.chunks; ++c) {
    const auto planes = planes_at<Policy>(layout.chunk(c), layout.chunk_elements, 0);
    std::byte* weights = at(planes, kernels::Plane::kWeight);
    if constexpr (std::is_same_v<Policy, Bf16SplitPolicy>) {
      kernels::split_bf16(reinterpret_cast<std::uint16_t*>(weights),
                          reinterpret_cast<std::int16_t*>(at(planes, kernels::Plane::kResidual)),
                          weight.data(), weight.size());
    } else {
      std::memcpy(weights, weight.data(), weight.size() * sizeof(float));
    }
    auto* moment1 = reinterpret_cast<float*>(at(planes, kernels::Plane::kMoment1));
    auto* moment2 = reinterpret_cast<float*>(at(planes, kernels::Plane::kMoment2));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      moment1[i] = 0.5f * gradient[i];
      moment2[i] = gradient[i] * gradient[i];
    }
    if (type == GradientPlane::kF32) {
      std::memcpy(layout.gradient(c, 0), gradient.data(), gradient.size() * sizeof(float));
    } else {
      kernels::f32_to_bf16(reinterpret_cast<std::uint16_t*>(layout.gradient(c, 0)), gradient.data(),
                           gradient.size());
    }
  }
}

/// Updates one tile and takes its checksums.
template <class Policy>
void update_tile(const kernels::PlanePointers& planes, const void* gradient, GradientPlane type,
                 const Factors& factors, Hashing hashing) {
  const kernels::Run run{.policy = Policy::kPolicy,
                         .planes = planes,
                         .gradient = static_cast<const std::byte*>(gradient),
                         .gradient_plane = type,
                         .elements = kTileElements};
  if (hashing == Hashing::kPlain) {
    benchmark::DoNotOptimize(kernels::update(run, factors));
    return;
  }
  kernels::PlaneHashers read, written;
  benchmark::DoNotOptimize(kernels::update(
      run, factors, {}, {.read = hashing == Hashing::kVerified ? &read : nullptr, .written = &written}));
  for (const kernels::PlaneHashers* hashers : {&read, &written})
    for (const kernels::Hasher& hasher : *hashers) benchmark::DoNotOptimize(hasher.digest());
}

template <class Policy>
void adamw(benchmark::State& state, GradientPlane type, Place place, Hashing hashing, std::size_t threads) {
  const std::size_t gradient_bytes = type == GradientPlane::kF32 ? 4 : 2;
  const bool in_cache = place == Place::kInCache;
  static const Arena small_arena(std::size_t{4} << 20);
  const std::size_t chunk_elements = in_cache ? kTileElements : kChunkElements;
  const Arena& arena = in_cache ? small_arena : big_arena();
  const std::size_t chunks =
      in_cache ? threads
               : arena.bytes() / (chunk_elements * (kStateBytes + gradient_bytes)) / threads * threads;
  const Layout layout{arena.data(), chunks, chunk_elements, gradient_bytes, in_cache ? std::size_t{2000} : 1};
  fill<Policy>(layout, type);
  const Factors factors = kernels::make_factors(AdamW{.lr = 1e-6}, 1000, 1.0);

  // Both sides go tile by tile over a thread's chunks.
  const auto over_tiles = [&](std::size_t thread, const auto& visit) {
    for (std::size_t pass = 0; pass < layout.passes; ++pass) {
      for (std::size_t c = thread * chunks / threads; c < (thread + 1) * chunks / threads; ++c) {
        for (std::size_t first = 0; first < chunk_elements; first += kTileElements) {
          visit(planes_at<Policy>(layout.chunk(c), chunk_elements, first), layout.gradient(c, first));
        }
      }
    }
  };
  const auto kernel = [&](const auto& planes, const void* gradient) {
    update_tile<Policy>(planes, gradient, type, factors, hashing);
  };
  const auto loop = [&](const auto& planes, const void* gradient) {
    Policy::same_bytes(planes, gradient, gradient_bytes, kTileElements);
  };
  const double elements = static_cast<double>(chunks * chunk_elements * layout.passes);
  run_side_by_side(state, {.kernel = [&](std::size_t thread) { over_tiles(thread, kernel); },
                           .same_bytes = [&](std::size_t thread) { over_tiles(thread, loop); },
                           .threads = threads,
                           .elements = elements,
                           .bytes = elements * static_cast<double>(2 * kStateBytes + gradient_bytes)});
}

template <class Policy>
void add_adamw() {
  for (const Place place : {Place::kInCache, Place::kOutOfCache}) {
    for (const GradientPlane type : {GradientPlane::kF32, GradientPlane::kBF16}) {
      for (const Hashing hashing : {Hashing::kPlain, Hashing::kHashed, Hashing::kVerified}) {
        for (const std::size_t threads : {1u, 2u}) {
          const std::string name = std::string("adamw/") + Policy::kName +
                                   (type == GradientPlane::kF32 ? "/f32_gradient/" : "/bf16_gradient/") +
                                   place_name(place) + "/" + hashing_name(hashing) + "/" +
                                   std::to_string(threads) + "_threads";
          benchmark::RegisterBenchmark(
              name.c_str(),
              [=](benchmark::State& state) { adamw<Policy>(state, type, place, hashing, threads); })
              ->Iterations(7)
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace

void add_adamw_benchmarks() {
  add_adamw<Bf16SplitPolicy>();
  add_adamw<Fp32Policy>();
}

}  // namespace sluice::bench
