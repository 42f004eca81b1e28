#include "store/value_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "kernels/convert.hpp"
#include "kernels/moments8.hpp"
#include "store/element_values.hpp"

namespace sluice::store {
namespace {

/// Elements that are converted at once, whole granules.
constexpr std::uint64_t kPiece = 64 << 10;

/// Calls work(range, elements before it) for the pieces of a range, in order.
template <class Work>
Status for_each_piece(Range range, const Work& work) {
  for (std::uint64_t done = 0; done < range.count; done += kPiece)
    SLUICE_RETURN_IF_ERROR(work(Range{range.first + done, std::min(kPiece, range.count - done)}, done));
  return {};
}

template <class T>
const T* as(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

}  // namespace

Result<const std::byte*> ValueReader::fetch(std::uint32_t parameter, const PlaneFormat& format, Range range,
                                            std::vector<std::byte>& buffer) {
  buffer.resize(std::max<std::size_t>(buffer.size(), format.bytes(range.count)));
  SLUICE_RETURN_IF_ERROR(reader_.read(parameter, format.plane, range, buffer.data()));
  return static_cast<const std::byte*>(buffer.data());
}

Status ValueReader::read_master(std::uint32_t parameter, Range range, float* target) {
  const ReadableParameter& readable = reader_.parameters()[parameter];
  const std::vector<PlaneFormat>& planes = readable.planes;
  const auto master = find_plane(planes, Plane::kMaster), residual = find_plane(planes, Plane::kResidual);
  const PlaneFormat& kept = planes[master.value_or(0)];
  if (!converts(kept.dtype))
    return Status(Code::kInvalidArgument,
                  fmt::format("parameter \"{}\": there are no fp32 values of {}, accepted: F32, BF16, F16",
                              readable.name, dtype_name(kept.dtype)));
  return for_each_piece(range, [&](Range piece, std::uint64_t done) -> Status {
    SLUICE_ASSIGN_OR_RETURN(const std::byte* values, fetch(parameter, kept, piece, first_));
    if (!residual) {
      to_f32(target + done, values, kept.dtype, piece.count);
      return {};
    }
    SLUICE_ASSIGN_OR_RETURN(const std::byte* rest, fetch(parameter, planes[*residual], piece, second_));
    kernels::join_bf16_split(target + done, as<std::uint16_t>(values), as<std::int16_t>(rest), piece.count);
    return {};
  });
}

Status ValueReader::read_moment(std::uint32_t parameter, Plane moment, Range range, float* target) {
  const std::vector<PlaneFormat>& planes = reader_.parameters()[parameter].planes;
  const PlaneFormat& kept = planes[*find_plane(planes, moment)];
  return for_each_piece(range, [&](Range piece, std::uint64_t done) -> Status {
    SLUICE_ASSIGN_OR_RETURN(const std::byte* values, fetch(parameter, kept, piece, first_));
    if (!is_coded(kept)) {
      to_f32(target + done, values, kept.dtype, piece.count);
      return {};
    }
    const PlaneFormat& scales = planes[*find_plane(planes, scale_of(moment))];
    SLUICE_ASSIGN_OR_RETURN(const std::byte* scale_values, fetch(parameter, scales, piece, second_));
    kernels::decode_moments8(target + done, as<std::uint8_t>(values), as<float>(scale_values), piece.count,
                             code_of(moment));
    return {};
  });
}

}  // namespace sluice::store
