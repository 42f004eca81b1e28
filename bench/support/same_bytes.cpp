#include "support/same_bytes.hpp"

#include <benchmark/benchmark.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "support/same_bytes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sluice::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<std::uint32_t>;
using Vector = hn::Vec<Words>;

constexpr std::size_t kBlockWords = 64;

HWY_INLINE void read(const std::uint32_t* source, std::size_t words, Vector& sink) {
  for (std::size_t block = 0; block + kBlockWords <= words; block += kBlockWords) {
    for (std::size_t i = 0; i < kBlockWords; i += hn::Lanes(Words()))
      sink = hn::Xor(sink, hn::LoadU(Words(), source + block + i));
  }
}

HWY_INLINE void write(std::uint32_t* target, std::size_t words, Vector ones) {
  for (std::size_t block = 0; block + kBlockWords <= words; block += kBlockWords) {
    for (std::size_t i = 0; i < kBlockWords; i += hn::Lanes(Words()))
      hn::StoreU(ones, Words(), target + block + i);
  }
}

HWY_INLINE void rewrite(std::uint32_t* target, std::size_t words, Vector ones) {
  std::size_t block = 0;
  for (; block + kBlockWords <= words; block += kBlockWords) {
    for (std::size_t i = 0; i < kBlockWords; i += hn::Lanes(Words())) {
      std::uint32_t* at = target + block + i;
      hn::StoreU(hn::And(hn::LoadU(Words(), at), ones), Words(), at);
    }
  }
  for (; block < words; ++block) target[block] &= hn::GetLane(ones);
}

void SameBytes(const Stream* streams, std::size_t count, std::size_t granules, std::uint32_t ones_word,
               std::uint32_t* sink_word) {
  const Vector ones = hn::Set(Words(), ones_word);
  Vector sink = hn::Zero(Words());
  for (std::size_t granule = 0; granule < granules; ++granule) {
    for (std::size_t i = 0; i < count; ++i) {
      const Stream& stream = streams[i];
      auto* data = reinterpret_cast<std::uint32_t*>(stream.data + granule * stream.granule_bytes);
      const std::size_t words = stream.granule_bytes / sizeof *data;
      switch (stream.access) {
        case Access::kRead:
          read(data, words, sink);
          break;
        case Access::kWrite:
          write(data, words, ones);
          break;
        case Access::kRewrite:
          rewrite(data, words, ones);
          break;
      }
    }
  }
  *sink_word = hn::GetLane(hn::SumOfLanes(Words(), sink));
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::bench {
namespace {

HWY_EXPORT(SameBytes);

}  // namespace

void same_bytes(std::span<const Stream> streams, std::size_t granules) {
  std::uint32_t ones = ~std::uint32_t{0}, sink = 0;
  benchmark::DoNotOptimize(ones);
  HWY_DYNAMIC_DISPATCH(SameBytes)(streams.data(), streams.size(), granules, ones, &sink);
  benchmark::DoNotOptimize(sink);
}

}  // namespace sluice::bench
#endif  // HWY_ONCE
