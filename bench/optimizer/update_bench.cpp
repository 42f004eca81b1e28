#include <benchmark/benchmark.h>

#include <array>
#include <span>
#include <string>

#include "chunk_state.hpp"
#include "kernels/constants.hpp"
#include "kernels/planes.hpp"
#include "kernels/update.hpp"
#include "support/same_bytes.hpp"
#include "support/side_by_side.hpp"

namespace sluice::bench {
namespace {

using kernels::GradientPlane;
using kernels::kGranuleElements;
using kernels::kTileElements;
using kernels::PlaneFormat;

/// What is hashed tile by tile: nothing, the planes as written, or the planes as read too, as a step does with
/// what it has from a drive.
enum class Checksums { kOff, kWritten, kReadAndWritten };

const char* checksums_name(Checksums checksums) {
  switch (checksums) {
    case Checksums::kOff:
      return "off";
    case Checksums::kWritten:
      return "written";
    case Checksums::kReadAndWritten:
      return "read_and_written";
  }
  return "";
}

struct Case {
  Optimizer optimizer;
  Policy policy;
  GradientPlane gradient;
  Place place;
  std::size_t threads;
  Checksums checksums;

  std::string name() const {
    std::string name = "update/";
    name += kind_of(optimizer).name;
    name += '/';
    name += policy_name(policy);
    name += gradient == GradientPlane::kF32 ? "/f32_gradient/" : "/bf16_gradient/";
    name += place_name(place);
    name += "/threads:" + std::to_string(threads) + "/checksums:" + checksums_name(checksums);
    return name;
  }
};

/// A rule's defaults with a learning rate by which thousands of updates leave ordinary numbers, and with momentum
/// where it has one.
Optimizer training_numbers(const OptimizerKind& kind) {
  Optimizer optimizer = kind.defaults;
  for (const OptimizerNumber& number : kind.numbers) {
    if (number.name == "lr") number.set(optimizer, 1e-6);
    if (number.name == "momentum") number.set(optimizer, 0.9);
  }
  return optimizer;
}

void update_tile(const kernels::Run& run, std::span<const PlaneFormat> formats,
                 const kernels::Factors& factors, const kernels::Dither& dither, Checksums checksums) {
  if (checksums == Checksums::kOff) {
    benchmark::DoNotOptimize(kernels::update(run, factors, dither));
    return;
  }
  const auto digest = [&](const kernels::PlaneHashers& hashers) {
    for (const PlaneFormat& format : formats)
      benchmark::DoNotOptimize(hashers[static_cast<std::size_t>(format.plane)].digest());
  };
  kernels::PlaneHashers written;
  if (checksums == Checksums::kWritten) {
    benchmark::DoNotOptimize(kernels::update(run, factors, dither, {.written = &written}));
  } else {
    kernels::PlaneHashers read;
    benchmark::DoNotOptimize(kernels::update(run, factors, dither, {.read = &read, .written = &written}));
    digest(read);
  }
  digest(written);
}

void move_tile(const kernels::Run& run, std::span<const PlaneFormat> formats) {
  std::array<Stream, kernels::kPlaneKinds + 1> streams;
  std::size_t count = 0;
  for (const PlaneFormat& format : formats)
    streams[count++] = {kernels::at(run.planes, format.plane), format.bytes(kGranuleElements),
                        Access::kRewrite};
  streams[count++] = {const_cast<std::byte*>(run.gradient),
                      kGranuleElements * gradient_bytes(run.gradient_plane), Access::kRead};
  same_bytes(std::span(streams).first(count), kTileElements / kGranuleElements);
}

/// Both sides go over a thread's chunks, or its tile again and again, tile by tile.
void update(benchmark::State& state, const Workplace& workplace, const Case& of) {
  const bool in_cache = of.place == Place::kInCache;
  const std::size_t chunk_elements = in_cache ? kTileElements : workplace.chunk_elements();
  const ChunkState chunks({.policy = of.policy,
                           .optimizer = of.optimizer,
                           .gradient = of.gradient,
                           .chunk_elements = chunk_elements},
                          workplace.arena.span(), of.threads, in_cache ? of.threads : std::size_t{1} << 20);
  constexpr std::uint64_t kStepCount = 1000;
  const kernels::Factors factors = kernels::make_factors(of.optimizer, kStepCount, 1.0);
  const std::uint64_t dither_key = kernels::dither_key(1, "benchmark", kStepCount);

  const auto over_tiles = [&](std::size_t thread, const auto& visit) {
    const std::size_t begin = thread * chunks.chunks() / of.threads;
    const std::size_t end = (thread + 1) * chunks.chunks() / of.threads;
    for (std::size_t pass = 0; pass < workplace.passes(of.place); ++pass) {
      for (std::size_t chunk = begin; chunk < end; ++chunk) {
        for (std::size_t first = 0; first < chunk_elements; first += kTileElements)
          visit(chunks.tile(chunk, first), chunk * chunk_elements + first);
      }
    }
  };
  const auto kernel = [&](const kernels::Run& run, std::uint64_t first_element) {
    update_tile(run, chunks.formats(), factors, {dither_key, first_element}, of.checksums);
  };
  const auto loop = [&](const kernels::Run& run, std::uint64_t) { move_tile(run, chunks.formats()); };
  run_side_by_side(
      state, workplace,
      {.kernel = [&](std::size_t thread) { over_tiles(thread, kernel); },
       .same_bytes = [&](std::size_t thread) { over_tiles(thread, loop); },
       .threads = of.threads,
       .elements = static_cast<double>(chunks.chunks() * chunk_elements * workplace.passes(of.place)),
       .bytes_per_element = chunks.bytes_per_element()});
}

void add_cases(const Workplace& workplace, const Optimizer& optimizer, Policy policy) {
  for (const GradientPlane gradient : {GradientPlane::kF32, GradientPlane::kBF16}) {
    for (const Place place : {Place::kInCache, Place::kOutOfCache}) {
      for (const std::size_t threads : workplace.thread_counts()) {
        for (const Checksums checksums : {Checksums::kOff, Checksums::kWritten, Checksums::kReadAndWritten}) {
          const Case of{optimizer, policy, gradient, place, threads, checksums};
          add_benchmark(of.name(), workplace,
                        [=, &workplace](benchmark::State& state) { update(state, workplace, of); });
        }
      }
    }
  }
}

}  // namespace

void add_update_benchmarks(const Workplace& workplace) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const Policy policy : policies()) {
      const Optimizer optimizer = training_numbers(kind);
      if (policy == Policy::kFrozen || !validate(policy, optimizer).ok()) continue;
      add_cases(workplace, optimizer, policy);
    }
  }
}

}  // namespace sluice::bench
