#include "support/fma_probe.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "support/timed_threads.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "support/fma_probe.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sluice::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight sums that do not depend on each other: two multiply-adds a cycle of four cycles' latency.
float MultiplyAdd(std::uint64_t rounds, float factor) {
  using F32 = hn::ScalableTag<float>;
  const auto f = hn::Set(F32(), factor);
  auto a = f, b = f, c = f, d = f, e = f, g = f, h = f, i = f;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, f, f);
    b = hn::MulAdd(b, f, f);
    c = hn::MulAdd(c, f, f);
    d = hn::MulAdd(d, f, f);
    e = hn::MulAdd(e, f, f);
    g = hn::MulAdd(g, f, f);
    h = hn::MulAdd(h, f, f);
    i = hn::MulAdd(i, f, f);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, d)), hn::Add(hn::Add(e, g), hn::Add(h, i)));
  return hn::GetLane(hn::SumOfLanes(F32(), sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::bench {
namespace {

HWY_EXPORT(MultiplyAdd);

void multiply_add(std::uint64_t rounds) {
  float factor = 0.999f;
  benchmark::DoNotOptimize(factor);
  benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(MultiplyAdd)(rounds, factor));
}

}  // namespace

double fma_scaling(std::size_t threads, double milliseconds) {
  // A round takes about four cycles, 1.5 ns.
  const auto rounds = static_cast<std::uint64_t>(milliseconds * 1e6 / 1.5);
  const auto work = [rounds](std::size_t) { multiply_add(rounds); };
  double alone = std::numeric_limits<double>::infinity(), together = alone;
  for (int turn = 0; turn < 3; ++turn) {
    alone = std::min(alone, seconds_of(work, 1));
    together = std::min(together, seconds_of(work, threads));
  }
  return static_cast<double>(threads) * alone / together;
}

}  // namespace sluice::bench
#endif  // HWY_ONCE
