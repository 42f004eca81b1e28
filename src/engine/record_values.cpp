#include "engine/record_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/constants.hpp"
#include "kernels/convert.hpp"
#include "kernels/moments8.hpp"
#include "store/element_values.hpp"

namespace sluice::engine {
namespace {

using kernels::kGranuleElements;
using store::Plane;

/// Elements that are converted at once, whole granules.
using Values = std::array<float, kernels::kTileElements>;

template <class T>
T* as(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}

std::optional<std::size_t> find(const store::ClassLayout& of_class, Plane plane) {
  return store::find_plane(of_class.planes, plane);
}

/// Where a view's values are, but for what is beside them: a residual, scales.
Plane main_plane(std::span<const store::PlaneFormat> planes, View view) {
  switch (view) {
    case View::kMoment1:
      return Plane::kMoment1;
    case View::kMoment2:
      return Plane::kMoment2;
    case View::kScale1:
      return Plane::kScale1;
    case View::kScale2:
      return Plane::kScale2;
    case View::kMaster:
      return store::find_plane(planes, Plane::kMaster) ? Plane::kMaster : Plane::kWeight;
    default:
      return Plane::kWeight;
  }
}

/// The plane that the main one is read together with.
std::optional<std::size_t> plane_beside(const store::ClassLayout& of_class, View view) {
  const std::size_t main = *find(of_class, main_plane(of_class.planes, view));
  if (store::is_coded(of_class.planes[main]))
    return find(of_class, store::scale_of(of_class.planes[main].plane));
  return view == View::kMaster ? find(of_class, Plane::kResidual) : std::nullopt;
}

/// 8-bit moments, granule by granule.
class CodedMoments {
 public:
  CodedMoments(const RecordElements& elements, View view)
      : elements_(elements),
        moment_(main_plane(elements.of_class.planes, view)),
        codes_(*find(elements.of_class, moment_)),
        scales_(*plane_beside(elements.of_class, view)) {}

  /// Calls work(values, first, count, done) for pieces of the run: `values` are all that the parameter has in granules, of
  /// which the run's elements [done, done + count) are those from `first` on. With Keep::kWorked they are coded anew.
  enum class Keep : std::uint8_t { kStored, kWorked };
  template <class Work>
  void for_each_piece(Keep keep, const Work& work) const {
    Values values;
    for (std::size_t done = 0; done < elements_.count;) {
      const std::size_t first = (elements_.offset + done) % kGranuleElements;
      const std::size_t count = std::min(values.size() - first, elements_.count - done);
      // A chunk's elements are whole granules. What is in a gap does not count: beside a scale that is NaN its codes,
      // zeros, stand for NaN.
      const std::size_t whole = (first + count + kGranuleElements - 1) / kGranuleElements * kGranuleElements;
      const std::size_t own = std::min(whole, elements_.parameter_end - (elements_.offset + done - first));
      auto* const codes = as<std::uint8_t>(elements_.at(codes_, done)) - first;
      auto* const scales = as<float>(elements_.at(scales_, done));
      kernels::decode_moments8(values.data(), codes, scales, own, store::code_of(moment_));
      work(values.data(), first, count, done);
      if (keep == Keep::kWorked)
        kernels::encode_moments8(codes, scales, values.data(), own, store::code_of(moment_));
      done += count;
    }
  }

  /// Takes out what the code has no sign for.
  void fit(float* values, std::size_t count) const {
    if (store::code_of(moment_) == kernels::Moment8::kSigned) return;
    for (std::size_t i = 0; i < count; ++i)
      if (values[i] < 0) values[i] = 0;
  }

 private:
  const RecordElements& elements_;
  const Plane moment_;
  const std::size_t codes_, scales_;
};

void write_weights(const RecordElements& elements, const float* values, std::size_t done, std::size_t count) {
  const store::ClassLayout& of_class = elements.of_class;
  std::byte* const weight = elements.at(0, done);
  if (const auto residual = find(of_class, Plane::kResidual)) {
    kernels::split_bf16(as<std::uint16_t>(weight), as<std::int16_t>(elements.at(*residual, done)), values,
                        count);
    return;
  }
  if (const auto master = find(of_class, Plane::kMaster))
    std::memcpy(elements.at(*master, done), values, count * sizeof(float));
  store::from_f32(weight, of_class.planes[0].dtype, values, count);
}

}  // namespace

bool has_view(std::span<const store::PlaneFormat> planes, View view) {
  return view != View::kCount && store::find_plane(planes, main_plane(planes, view)).has_value();
}

PlaneRange planes_of_view(const store::ClassLayout& of_class, View view) {
  const std::size_t main = *find(of_class, main_plane(of_class.planes, view));
  const std::size_t last = plane_beside(of_class, view).value_or(main);
  return {main, last - main + 1};
}

void read_values(const RecordElements& elements, View view, std::byte* target, DType dtype) {
  const store::ClassLayout& of_class = elements.of_class;
  const std::size_t plane = *find(of_class, main_plane(of_class.planes, view));
  const DType stored = of_class.planes[plane].dtype;
  const std::optional<std::size_t> beside = plane_beside(of_class, view);
  const bool coded = store::is_coded(of_class.planes[plane]);
  if ((!beside || coded) && stored == dtype) {
    std::memcpy(target, elements.at(plane), of_class.planes[plane].bytes(elements.count));
    return;
  }
  if (coded) {
    CodedMoments(elements, view)
        .for_each_piece(CodedMoments::Keep::kStored,
                        [&](const float* values, std::size_t first, std::size_t count, std::size_t done) {
                          store::from_f32(target + done * dtype_bytes(dtype), dtype, values + first, count);
                        });
    return;
  }
  Values values;
  for (std::size_t done = 0; done < elements.count; done += values.size()) {
    const std::size_t count = std::min(values.size(), elements.count - done);
    if (beside)
      kernels::join_bf16_split(values.data(), as<std::uint16_t>(elements.at(plane, done)),
                               as<std::int16_t>(elements.at(*beside, done)), count);
    else
      store::to_f32(values.data(), elements.at(plane, done), stored, count);
    store::from_f32(target + done * dtype_bytes(dtype), dtype, values.data(), count);
  }
}

bool can_keep(Policy policy, View view, const GivenValues& given) {
  const bool second = view == View::kMoment2;
  if (policy != Policy::kMoments8 || !(second || view == View::kMoment1)) return true;
  Values values;
  for (std::uint64_t done = 0; done < given.count; done += values.size()) {
    const std::size_t count = std::min<std::uint64_t>(values.size(), given.count - done);
    store::to_f32(values.data(), given.data + done * dtype_bytes(given.dtype), given.dtype, count);
    for (std::size_t i = 0; i < count; ++i)
      if (std::isinf(values[i]) || (second && values[i] < 0)) return false;
  }
  return true;
}

void write_values(const RecordElements& elements, View view, const std::byte* source, DType dtype) {
  const store::ClassLayout& of_class = elements.of_class;
  const std::size_t plane = *find(of_class, main_plane(of_class.planes, view));
  const bool of_weights = view == View::kWeight || view == View::kMaster;
  const DType stored = of_class.planes[plane].dtype;
  const bool alone = !of_weights || (!find(of_class, Plane::kResidual) && !find(of_class, Plane::kMaster));
  if (alone && stored == dtype) {
    std::memcpy(elements.at(plane), source, std::uint64_t{elements.count} * dtype_bytes(dtype));
    return;
  }
  if (store::is_coded(of_class.planes[plane])) {
    const CodedMoments moments(elements, view);
    moments.for_each_piece(CodedMoments::Keep::kWorked,
                           [&](float* values, std::size_t first, std::size_t count, std::size_t done) {
                             store::to_f32(values + first, source + done * dtype_bytes(dtype), dtype, count);
                             moments.fit(values + first, count);
                           });
    return;
  }
  Values values;
  for (std::size_t done = 0; done < elements.count; done += values.size()) {
    const std::size_t count = std::min(values.size(), elements.count - done);
    store::to_f32(values.data(), source + done * dtype_bytes(dtype), dtype, count);
    if (of_weights)
      write_weights(elements, values.data(), done, count);
    else
      store::from_f32(elements.at(plane, done), stored, values.data(), count);
  }
}

std::uint64_t count_overflowed(const RecordElements& elements) {
  const auto residual = find(elements.of_class, Plane::kResidual);
  const auto master = find(elements.of_class, Plane::kMaster);
  if (!residual && !master) return 0;
  const auto* const weights = as<const std::uint16_t>(elements.at(0));
  std::uint64_t overflowed = 0;
  if (residual) {
    // An infinite master has nothing that takes the infinity back.
    const auto* const residuals = as<const std::int16_t>(elements.at(*residual));
    for (std::size_t i = 0; i < elements.count; ++i)
      overflowed += (weights[i] & 0x7fff) == 0x7f80 && residuals[i] != 0;
  } else {
    const auto* const masters = as<const float>(elements.at(*master));
    for (std::size_t i = 0; i < elements.count; ++i)
      overflowed += (weights[i] & 0x7fff) == 0x7c00 && std::isfinite(masters[i]);
  }
  return overflowed;
}

}  // namespace sluice::engine
