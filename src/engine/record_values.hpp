#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/records.hpp"
#include "sluice/types.hpp"
#include "store/layout.hpp"

namespace sluice::engine {

/// A run of elements in a chunk's record.
struct RecordElements {
  const store::ChunkLayout& layout;
  const store::ClassLayout& of_class;
  std::byte* record = nullptr;
  std::uint32_t offset = 0;  ///< element of the chunk
  std::uint32_t count = 0;
  /// Where the run's parameter ends in the chunk: the elements from there to the next granule are a gap, whose values are
  /// no one's. Of a run that is only looked at, where it ends.
  std::uint32_t parameter_end;

  /// The value of the run's element `done` in a plane; of a plane of scales, of the granule that it lies in.
  std::byte* at(std::size_t plane, std::size_t done = 0) const {
    const store::PlaneFormat& format = of_class.planes[plane];
    return record + layout.record.plane_offsets[plane] +
           (offset + done) / format.elements_per_value * dtype_bytes(format.dtype);
  }
};

/// Whether planes keep what a view shows. A frozen class has kWeight and nothing else.
bool has_view(std::span<const store::PlaneFormat> planes, View view);

/// Neighbouring planes that a view's values are made of, perhaps with one between them that they are not made of.
/// Requires: has_view().
PlaneRange planes_of_view(const store::ClassLayout& of_class, View view);

/// The run's values as `dtype`: bit for bit where they are kept in it, else by way of fp32.
/// Shape: target [count]; of scales [ceil(count / 256)]. Requires: has_view(); dtype converts, or is that of the plane,
/// as for scales.
void read_values(const RecordElements& elements, View view, std::byte* target, DType dtype);

/// Values in a buffer of a caller's. Requires: converts(dtype), or count = 0.
struct GivenValues {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::uint64_t count = 0;
};

/// Whether the policy can keep them: 8-bit moments hold no Inf, and second ones nothing below 0.
bool can_keep(Policy policy, View view, const GivenValues& values);

/// Takes the run's values, with all that follows from them: of a weight or a master all planes that hold a part of
/// either (a weight is taken as the master's value); of 8-bit moments the codes and scales of every granule that the
/// run touches, so that a part of a granule codes the rest of its parameter in it anew. bf16 moments are rounded to nearest
/// even; of what can_keep() refuses an Inf makes its granule NaN, but of second moments becomes the largest float, and
/// a second moment below 0 becomes 0.
/// Shape: source [count]. Requires: has_view(), not of scales; dtype converts, or is that of a frozen weight.
void write_values(const RecordElements& elements, View view, const std::byte* source, DType dtype);

/// Elements of the run with a finite master whose weight is infinite.
std::uint64_t count_overflowed(const RecordElements& elements);

}  // namespace sluice::engine
