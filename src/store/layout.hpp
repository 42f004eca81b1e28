#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/planes.hpp"
#include "sluice/optimizer.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice::store {

/// Elements of one parameter that no boundary of a shard or a chunk divides, counted from its element 0.
inline constexpr std::uint32_t kGranule = 256;

/// Of a record, in the order in which they lie in it. The gradient is a plane beside the record.
using kernels::Plane;
using kernels::plane_name;
using kernels::PlaneFormat;
using kernels::planes_of;

/// The most planes that a record has: weight, residual, two moments and their scales.
inline constexpr std::size_t kMaxPlanes = 6;

struct ParameterSpec {
  std::string name = {};
  std::uint64_t elements = 0;
  std::uint32_t group = 0;
  Policy policy = Policy::kBf16Split;
  Optimizer optimizer = {};
  DType frozen_dtype = DType::kBF16;
  GradientStorage gradient = GradientStorage::kFp32;
  std::uint32_t rank = 0;  ///< in the communicator of its group
  std::uint32_t world = 1;
};

/// align_up(ceil(elements / world), 256): what every rank holds whose shard is full.
/// Requires: world > 0, elements <= 2^63.
std::uint64_t shard_elements(std::uint64_t elements, std::uint32_t world);

/// The elements of the whole parameter that `rank` owns: count = max(0, min(shard, elements - rank * shard)).
/// The shards of all ranks cover the parameter once; an empty one starts at `elements`.
/// Requires: rank < world, elements <= 2^63.
Range shard_of(std::uint64_t elements, std::uint32_t rank, std::uint32_t world);

/// A run of one parameter's elements in one chunk.
/// Invariant: offset % 256 = 0, first % 256 = 0, 0 < count, offset + count <= the chunk's elements.
struct Segment {
  std::uint32_t parameter = 0;  ///< index in the specs
  std::uint32_t group = 0;
  std::uint64_t first = 0;   ///< element of the whole parameter
  std::uint32_t offset = 0;  ///< element of the chunk
  std::uint32_t count = 0;   ///< elements
};

/// Where a chunk's planes lie in its record, in the order of its class's planes.
/// Invariant: plane_offsets[0] = 0; plane_offsets[i + 1] = align_up(plane_offsets[i] + bytes of plane i,
/// grid); `bytes` is the same sum past the last plane, hence on the grid.
struct RecordLayout {
  std::vector<std::uint64_t> plane_offsets;
  std::uint64_t bytes = 0;
};

/// Parameters whose planes, dtypes and gradient storage agree; frozen ones never with stepped ones.
struct ClassLayout {
  Policy policy = Policy::kBf16Split;
  std::vector<PlaneFormat> planes;
  std::optional<DType> gradient;  ///< kF32 or kBF16; none when frozen
  std::uint32_t first_chunk = 0;  ///< its chunks are [first_chunk, first_chunk + chunks)
  std::uint32_t chunks = 0;       ///< 0 if this rank owns none of its elements
};

/// Invariant: 0 < elements <= chunk_elements, a multiple of 256; equal to chunk_elements but in a class's
/// last chunk.
struct ChunkLayout {
  std::uint32_t class_index = 0;
  std::uint32_t elements = 0;
  RecordLayout record;
  std::uint64_t gradient_bytes = 0;  ///< of its gradient plane, on the grid; 0 when frozen
};

/// A part of a parameter: the segment and the chunk that it lies in.
struct Piece {
  std::uint32_t chunk = 0;
  std::uint32_t segment = 0;  ///< index in segments()
};

struct LayoutOptions {
  std::uint32_t chunk_elements = 1 << 20;  ///< a multiple of 16 Ki, at most 1 Gi
  std::uint32_t grid_bytes = 4096;         ///< a power of two, 512 .. 1 Mi
};

/// Errors: kInvalidArgument with the field, its value and the accepted range.
Status check(const LayoutOptions& options);

/// Where every element that this rank owns lies. A class is one line of elements: the shards of its
/// parameters in order of registration, each from a granule on; the gap before the next granule is in no
/// segment. Chunks cut that line every chunk_elements. Invariants: the sum of segment counts over all chunks
/// = the sum of shard counts over all parameters; classes stand in the order of their first parameter, their
/// chunks one after the other. Threads: const, any.
class ElementLayout {
 public:
  /// Errors: kInvalidArgument for an option or spec out of its range, or if there would be 2^32 chunks or
  /// more.
  static Result<ElementLayout> build(std::span<const ParameterSpec> parameters, LayoutOptions options);

  std::span<const ClassLayout> classes() const { return classes_; }
  std::span<const ChunkLayout> chunks() const { return chunks_; }
  /// Of all chunks, by chunk and ascending offset.
  std::span<const Segment> segments() const { return segments_; }
  std::span<const Segment> segments_of(std::uint32_t chunk) const;
  /// The parts of this rank's shard, ascending in element; empty if it owns none.
  std::span<const Piece> pieces_of(std::uint32_t parameter) const;

 private:
  struct Run {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  /// Cuts the shards of one class's parameters into segments.
  void place(std::span<const ParameterSpec> specs, std::span<const std::uint32_t> parameters,
             std::uint32_t first_chunk, std::uint32_t chunk_elements);

  std::vector<ClassLayout> classes_;
  std::vector<ChunkLayout> chunks_;
  std::vector<Segment> segments_;
  std::vector<Run> chunk_segments_;    // by chunk, into segments_
  std::vector<Piece> pieces_;          // by segment
  std::vector<Run> parameter_pieces_;  // by parameter, into pieces_
};

}  // namespace sluice::store
