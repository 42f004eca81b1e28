#include "engine/initial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "engine/record_values.hpp"
#include "kernels/constants.hpp"
#include "kernels/tile_hash.hpp"
#include "store/checksum.hpp"
#include "store/element_values.hpp"

namespace sluice::engine {
namespace {

/// The finaliser of SplitMix64: a bijection whose outputs for consecutive counters pass as independent.
/// Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators".
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Normal values in pairs, elements 2k and 2k + 1 from counter k. Source: Box and Muller 1958.
void fill_normal(const Normal& normal, std::uint64_t key, std::uint64_t first, std::size_t count,
                 float* target) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
  for (std::size_t i = 0; i < count;) {
    const std::uint64_t element = first + i;
    const std::uint64_t bits = mix(key + (element / 2 + 1) * kGolden);
    // Uniform in (0, 1] and [0, 1), 32 bits each.
    const float u = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;
    const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    const float radius = normal.stddev * std::sqrt(-2.0f * std::log(u));
    const float angle = 2.0f * std::numbers::pi_v<float> * v;
    if (element % 2 == 0) target[i++] = normal.mean + radius * std::cos(angle);
    if (i < count && (first + i) % 2 == 1) target[i++] = normal.mean + radius * std::sin(angle);
  }
}

struct Filler {
  const Tensor& tensor;
  std::uint64_t seed;
  Range range;
  float* target;

  Status operator()(const Zeros&) const {
    std::fill_n(target, range.count, 0.0f);
    return {};
  }
  Status operator()(const Constant& constant) const {
    std::fill_n(target, range.count, constant.value);
    return {};
  }
  Status operator()(const Normal& normal) const {
    const std::uint64_t key = mix(seed) ^ kernels::hash_bytes(tensor.name.data(), tensor.name.size());
    fill_normal(normal, key, range.first, range.count, target);
    return {};
  }
  Status operator()(const InitialCallback& callback) const {
    return callback(range, DType::kF32, target)
        .with_context(fmt::format("initial values of '{}'", tensor.name));
  }
};

/// A frozen weight of another dtype than fp32 is converted from it; dtypes without a conversion take zeros or
/// a callback.
Status fill_frozen(const Tensor& tensor, std::uint64_t seed, Range range, DType dtype, std::byte* target) {
  if (const auto* callback = std::get_if<InitialCallback>(&tensor.initial))
    return (*callback)(range, dtype, target).with_context(fmt::format("initial values of '{}'", tensor.name));
  if (std::holds_alternative<Zeros>(tensor.initial)) {
    std::memset(target, 0, range.count * dtype_bytes(dtype));
    return {};
  }
  std::array<float, kernels::kTileElements> values;
  SLUICE_RETURN_IF_ERROR(std::visit(Filler{tensor, seed, range, values.data()}, tensor.initial));
  if (!store::converts(dtype))
    return Status(Code::kInvalidArgument, fmt::format("initial values of '{}': {} takes zeros or a callback",
                                                      tensor.name, dtype_name(dtype)));
  store::from_f32(target, dtype, values.data(), range.count);
  return {};
}

}  // namespace

bool has_callback(const State& state, const FirstValues& first_values, std::uint32_t chunk) {
  return std::ranges::any_of(state.layout.segments_of(chunk), [&](const store::Segment& segment) {
    return first_values.wanted(segment.parameter) &&
           std::holds_alternative<InitialCallback>(state.registry.tensors()[segment.parameter].initial);
  });
}

Status fill_tile(const State& state, const FirstValues& first_values, std::uint32_t chunk, std::uint32_t tile,
                 std::byte* record, std::uint64_t& overflowed) {
  const store::ChunkLayout& layout = state.chunk_layout(chunk);
  const store::ClassLayout& of_class = state.class_of(chunk);
  const store::TileExtent extent = store::tile_extent(layout.elements, tile);
  for (std::size_t plane = 0; plane < of_class.planes.size(); ++plane) {
    const store::TileBytes bytes = store::tile_bytes(layout.elements, tile, of_class.planes[plane]);
    std::memset(record + layout.record.plane_offsets[plane] + bytes.first, 0, bytes.count);
  }
  const std::uint32_t last = extent.first + extent.count;
  std::array<float, kernels::kTileElements> values;
  for (const store::Segment& segment : state.layout.segments_of(chunk)) {
    const std::uint32_t begin = std::max(extent.first, segment.offset);
    const std::uint32_t end = std::min(last, segment.offset + segment.count);
    if (begin >= end || !first_values.wanted(segment.parameter)) continue;
    const std::uint64_t seed = first_values.seed;
    const Tensor& tensor = state.registry.tensors()[segment.parameter];
    const Range range{segment.first + (begin - segment.offset), end - begin};
    if (of_class.policy == Policy::kFrozen) {
      std::byte* weight = record + std::uint64_t{begin} * dtype_bytes(of_class.planes[0].dtype);
      SLUICE_RETURN_IF_ERROR(fill_frozen(tensor, seed, range, of_class.planes[0].dtype, weight));
      continue;
    }
    SLUICE_RETURN_IF_ERROR(std::visit(Filler{tensor, seed, range, values.data()}, tensor.initial));
    const RecordElements elements{layout, of_class,    record,
                                  begin,  end - begin, segment.offset + segment.count};
    write_values(elements, View::kMaster, reinterpret_cast<const std::byte*>(values.data()), DType::kF32);
    overflowed += count_overflowed(elements);
  }
  return {};
}

}  // namespace sluice::engine
