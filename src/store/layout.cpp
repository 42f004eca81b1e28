#include "store/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/constants.hpp"
#include "store/offsets.hpp"

namespace sluice::store {
namespace {

static_assert(kGranule == kernels::kGranuleElements);

constexpr std::uint64_t kParameterElementsMax = std::uint64_t{1} << 63;
constexpr std::uint64_t kChunksMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kChunkElementsMax = 1u << 30;

std::optional<DType> gradient_dtype(const ParameterSpec& spec) {
  if (spec.policy == Policy::kFrozen) return std::nullopt;
  return spec.gradient == GradientStorage::kBf16Once ? DType::kBF16 : DType::kF32;
}

Status check(const ParameterSpec& spec) {
  if (spec.elements > kParameterElementsMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("parameter \"{}\": {} elements, at most {} are possible", spec.name,
                              spec.elements, kParameterElementsMax));
  }
  if (spec.rank >= spec.world) {
    return Status(Code::kInvalidArgument, fmt::format("parameter \"{}\": rank {} is outside its world of {}",
                                                      spec.name, spec.rank, spec.world));
  }
  return {};
}

RecordLayout record_of(const std::vector<PlaneFormat>& planes, std::uint64_t elements,
                       std::uint32_t grid_bytes) {
  RecordLayout record;
  for (const PlaneFormat& plane : planes) {
    record.plane_offsets.push_back(record.bytes);
    record.bytes += align_up(plane.bytes(elements), grid_bytes);
  }
  return record;
}

/// The parameters of one class and the length of its line of elements, gaps counted.
struct ClassMembers {
  std::vector<std::uint32_t> parameters;
  std::uint64_t elements = 0;
};

}  // namespace

Status check(const LayoutOptions& options) {
  if (options.chunk_elements == 0 || options.chunk_elements % kernels::kTileElements != 0 ||
      options.chunk_elements > kChunkElementsMax) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("chunk_elements = {}: not a multiple of {} from {} to {}", options.chunk_elements,
                    kernels::kTileElements, kernels::kTileElements, kChunkElementsMax));
  }
  if (!std::has_single_bit(options.grid_bytes) || options.grid_bytes < 512 ||
      options.grid_bytes > (1u << 20)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("grid_bytes = {}: not a power of two from 512 to 1048576", options.grid_bytes));
  }
  return {};
}

std::uint64_t shard_elements(std::uint64_t elements, std::uint32_t world) {
  return align_up(elements / world + (elements % world != 0), kGranule);
}

Range shard_of(std::uint64_t elements, std::uint32_t rank, std::uint32_t world) {
  const std::uint64_t shard = shard_elements(elements, world);
  const std::uint64_t first =
      std::min(elements, rank * shard);  // rank * shard <= elements + 256 * world < 2^64
  return {first, std::min(shard, elements - first)};
}

Result<ElementLayout> ElementLayout::build(std::span<const ParameterSpec> parameters, LayoutOptions options) {
  SLUICE_RETURN_IF_ERROR(check(options));
  ElementLayout layout;
  std::vector<ClassMembers> members;
  std::uint64_t chunks = 0;
  for (std::uint32_t index = 0; index < parameters.size(); ++index) {
    const ParameterSpec& spec = parameters[index];
    SLUICE_RETURN_IF_ERROR(check(spec));
    const auto planes = planes_of(spec.policy, spec.optimizer, spec.frozen_dtype);
    const auto gradient = gradient_dtype(spec);
    const auto same = std::find_if(
        layout.classes_.begin(), layout.classes_.end(),
        [&](const ClassLayout& one) { return one.planes == planes && one.gradient == gradient; });
    const auto at = static_cast<std::size_t>(same - layout.classes_.begin());
    if (same == layout.classes_.end()) {
      layout.classes_.push_back({spec.policy, planes, gradient, 0, 0});
      members.emplace_back();
    }
    const auto chunks_for = [&](std::uint64_t elements) {
      return elements / options.chunk_elements + (elements % options.chunk_elements != 0);
    };
    ClassMembers& mine = members[at];
    chunks -= chunks_for(mine.elements);
    // At most 2^62 (2^32 chunks of 2^30) + 2^63: no overflow before the check.
    mine.elements += align_up(shard_of(spec.elements, spec.rank, spec.world).count, kGranule);
    mine.parameters.push_back(index);
    chunks += chunks_for(mine.elements);
    if (chunks + index >= kChunksMax) {
      return Status(
          Code::kInvalidArgument,
          fmt::format(
              "parameter \"{}\": with it there are {} chunks of {} elements, at most {} are possible; "
              "a larger chunk_elements would do",
              spec.name, chunks, options.chunk_elements, kChunksMax));
    }
  }

  layout.chunks_.reserve(chunks);
  layout.parameter_pieces_.resize(parameters.size());
  for (std::uint32_t at = 0; at < layout.classes_.size(); ++at) {
    ClassLayout& one = layout.classes_[at];
    one.first_chunk = static_cast<std::uint32_t>(layout.chunks_.size());
    for (std::uint64_t start = 0; start < members[at].elements; start += options.chunk_elements) {
      ChunkLayout chunk;
      chunk.class_index = at;
      chunk.elements = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(options.chunk_elements, members[at].elements - start));
      chunk.record = record_of(one.planes, chunk.elements, options.grid_bytes);
      if (one.gradient) {
        chunk.gradient_bytes =
            align_up(std::uint64_t{chunk.elements} * dtype_bytes(*one.gradient), options.grid_bytes);
      }
      layout.chunks_.push_back(std::move(chunk));
    }
    one.chunks = static_cast<std::uint32_t>(layout.chunks_.size()) - one.first_chunk;
    layout.place(parameters, members[at].parameters, one.first_chunk, options.chunk_elements);
  }
  layout.chunk_segments_.resize(layout.chunks_.size());
  for (std::size_t index = 0; index < layout.pieces_.size(); ++index) {
    Run& run = layout.chunk_segments_[layout.pieces_[index].chunk];
    if (run.count++ == 0) run.first = index;
  }
  return layout;
}

void ElementLayout::place(std::span<const ParameterSpec> specs, std::span<const std::uint32_t> parameters,
                          std::uint32_t first_chunk, std::uint32_t chunk_elements) {
  std::uint64_t position = 0;  // on the class's line of elements
  for (const std::uint32_t parameter : parameters) {
    const ParameterSpec& spec = specs[parameter];
    const Range shard = shard_of(spec.elements, spec.rank, spec.world);
    Run& run = parameter_pieces_[parameter];
    run.first = segments_.size();
    for (std::uint64_t done = 0; done < shard.count;) {
      const std::uint64_t offset = (position + done) % chunk_elements;
      const std::uint64_t count = std::min(chunk_elements - offset, shard.count - done);
      pieces_.push_back({first_chunk + static_cast<std::uint32_t>((position + done) / chunk_elements),
                         static_cast<std::uint32_t>(segments_.size())});
      segments_.push_back({parameter, spec.group, shard.first + done, static_cast<std::uint32_t>(offset),
                           static_cast<std::uint32_t>(count)});
      done += count;
    }
    run.count = segments_.size() - run.first;
    position += align_up(shard.count, kGranule);
  }
}

std::span<const Segment> ElementLayout::segments_of(std::uint32_t chunk) const {
  return segments().subspan(chunk_segments_[chunk].first, chunk_segments_[chunk].count);
}

std::span<const Piece> ElementLayout::pieces_of(std::uint32_t parameter) const {
  const Run& run = parameter_pieces_[parameter];
  return std::span(pieces_).subspan(run.first, run.count);
}

}  // namespace sluice::store
