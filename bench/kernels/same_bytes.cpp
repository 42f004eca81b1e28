#include "same_bytes.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "same_bytes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sluice::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<std::uint64_t>;
using Vector = hn::Vec<Bytes>;

constexpr std::size_t kBlock = 64;

struct Streams {
  Vector ones;  // all ones, which the compiler does not know
  Vector sink;

  template <std::size_t kBytes>
  HWY_INLINE void rewrite(void* target, std::size_t block) {
    auto* words = static_cast<std::uint64_t*>(target) + block * (kBytes / 8);
    for (std::size_t i = 0; i < kBytes / 8; i += hn::Lanes(Bytes())) {
      hn::StoreU(hn::And(hn::LoadU(Bytes(), words + i), ones), Bytes(), words + i);
    }
  }
  template <std::size_t kBytes>
  HWY_INLINE void read(const void* source, std::size_t block) {
    const auto* words = static_cast<const std::uint64_t*>(source) + block * (kBytes / 8);
    for (std::size_t i = 0; i < kBytes / 8; i += hn::Lanes(Bytes())) {
      sink = hn::Xor(sink, hn::LoadU(Bytes(), words + i));
    }
  }
  template <std::size_t kBytes>
  HWY_INLINE void write(void* target, std::size_t block) {
    auto* words = static_cast<std::uint64_t*>(target) + block * (kBytes / 8);
    for (std::size_t i = 0; i < kBytes / 8; i += hn::Lanes(Bytes())) hn::StoreU(ones, Bytes(), words + i);
  }
};

template <std::size_t kGradientBytes>
void bf16_split(const kernels::PlanePointers& planes, const void* gradient, std::size_t blocks,
                std::uint64_t ones, std::uint64_t* sink) {
  Streams streams{hn::Set(Bytes(), ones), hn::Zero(Bytes())};
  for (std::size_t block = 0; block < blocks; ++block) {
    streams.rewrite<kBlock * 2>(kernels::at(planes, kernels::Plane::kWeight), block);
    streams.rewrite<kBlock * 2>(kernels::at(planes, kernels::Plane::kResidual), block);
    streams.rewrite<kBlock * 4>(kernels::at(planes, kernels::Plane::kMoment1), block);
    streams.rewrite<kBlock * 4>(kernels::at(planes, kernels::Plane::kMoment2), block);
    streams.read<kBlock * kGradientBytes>(gradient, block);
  }
  *sink = hn::GetLane(hn::SumOfLanes(Bytes(), streams.sink));
}

template <std::size_t kGradientBytes>
void fp32(const kernels::PlanePointers& planes, const void* gradient, std::size_t blocks, std::uint64_t ones,
          std::uint64_t* sink) {
  Streams streams{hn::Set(Bytes(), ones), hn::Zero(Bytes())};
  for (std::size_t block = 0; block < blocks; ++block) {
    streams.rewrite<kBlock * 4>(kernels::at(planes, kernels::Plane::kWeight), block);
    streams.rewrite<kBlock * 4>(kernels::at(planes, kernels::Plane::kMoment1), block);
    streams.rewrite<kBlock * 4>(kernels::at(planes, kernels::Plane::kMoment2), block);
    streams.read<kBlock * kGradientBytes>(gradient, block);
  }
  *sink = hn::GetLane(hn::SumOfLanes(Bytes(), streams.sink));
}

template <std::size_t kTargetBytes, std::size_t kSourceBytes>
void store(void* target, const void* source, std::size_t blocks, std::uint64_t ones, std::uint64_t* sink) {
  Streams streams{hn::Set(Bytes(), ones), hn::Zero(Bytes())};
  for (std::size_t block = 0; block < blocks; ++block) {
    streams.read<kBlock * kSourceBytes>(source, block);
    streams.write<kBlock * kTargetBytes>(target, block);
  }
  *sink = hn::GetLane(hn::SumOfLanes(Bytes(), streams.sink));
}

template <std::size_t kSourceBytes>
void add(void* target, const void* source, std::size_t blocks, std::uint64_t ones, std::uint64_t* sink) {
  Streams streams{hn::Set(Bytes(), ones), hn::Zero(Bytes())};
  for (std::size_t block = 0; block < blocks; ++block) {
    streams.read<kBlock * kSourceBytes>(source, block);
    streams.rewrite<kBlock * 4>(target, block);
  }
  *sink = hn::GetLane(hn::SumOfLanes(Bytes(), streams.sink));
}

void Bf16Split(const kernels::PlanePointers& planes, const void* gradient, std::size_t gradient_element_bytes,
               std::size_t elements, std::uint64_t ones, std::uint64_t* sink) {
  (gradient_element_bytes == 4 ? bf16_split<4> : bf16_split<2>)(planes, gradient, elements / kBlock, ones,
                                                                sink);
}

void Fp32(const kernels::PlanePointers& planes, const void* gradient, std::size_t gradient_element_bytes,
          std::size_t elements, std::uint64_t ones, std::uint64_t* sink) {
  (gradient_element_bytes == 4 ? fp32<4> : fp32<2>)(planes, gradient, elements / kBlock, ones, sink);
}

void Store(void* target, std::size_t target_element_bytes, const void* source,
           std::size_t source_element_bytes, std::size_t elements, std::uint64_t ones, std::uint64_t* sink) {
  const auto move = target_element_bytes == 4 ? (source_element_bytes == 4 ? store<4, 4> : store<4, 2>)
                                              : (source_element_bytes == 4 ? store<2, 4> : store<2, 2>);
  move(target, source, elements / kBlock, ones, sink);
}

void Add(float* target, const void* source, std::size_t source_element_bytes, std::size_t elements,
         std::uint64_t ones, std::uint64_t* sink) {
  (source_element_bytes == 4 ? add<4> : add<2>)(target, source, elements / kBlock, ones, sink);
}

void Read(const void* source, std::size_t bytes, std::uint64_t ones, std::uint64_t* sink) {
  Streams streams{hn::Set(Bytes(), ones), hn::Zero(Bytes())};
  for (std::size_t block = 0; block < bytes / 512; ++block) streams.read<512>(source, block);
  *sink = hn::GetLane(hn::SumOfLanes(Bytes(), streams.sink));
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::bench {
namespace {

HWY_EXPORT(Bf16Split);
HWY_EXPORT(Fp32);
HWY_EXPORT(Store);
HWY_EXPORT(Add);
HWY_EXPORT(Read);

std::uint64_t hidden_ones() {
  std::uint64_t ones = ~std::uint64_t{0};
  benchmark::DoNotOptimize(ones);
  return ones;
}

}  // namespace

void same_bytes_bf16_split(const kernels::PlanePointers& planes, const void* gradient,
                           std::size_t gradient_element_bytes, std::size_t elements) {
  std::uint64_t sink = 0;
  HWY_DYNAMIC_DISPATCH(Bf16Split)(planes, gradient, gradient_element_bytes, elements, hidden_ones(), &sink);
  benchmark::DoNotOptimize(sink);
}

void same_bytes_fp32(const kernels::PlanePointers& planes, const void* gradient,
                     std::size_t gradient_element_bytes, std::size_t elements) {
  std::uint64_t sink = 0;
  HWY_DYNAMIC_DISPATCH(Fp32)(planes, gradient, gradient_element_bytes, elements, hidden_ones(), &sink);
  benchmark::DoNotOptimize(sink);
}

void same_bytes_store(void* target, std::size_t target_element_bytes, const void* source,
                      std::size_t source_element_bytes, std::size_t elements) {
  std::uint64_t sink = 0;
  HWY_DYNAMIC_DISPATCH(Store)
  (target, target_element_bytes, source, source_element_bytes, elements, hidden_ones(), &sink);
  benchmark::DoNotOptimize(sink);
}

void same_bytes_add(float* target, const void* source, std::size_t source_element_bytes,
                    std::size_t elements) {
  std::uint64_t sink = 0;
  HWY_DYNAMIC_DISPATCH(Add)(target, source, source_element_bytes, elements, hidden_ones(), &sink);
  benchmark::DoNotOptimize(sink);
}

void same_bytes_read(const void* source, std::size_t bytes) {
  std::uint64_t sink = 0;
  HWY_DYNAMIC_DISPATCH(Read)(source, bytes, hidden_ones(), &sink);
  benchmark::DoNotOptimize(sink);
}

}  // namespace sluice::bench
#endif  // HWY_ONCE
