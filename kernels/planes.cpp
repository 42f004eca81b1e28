#include "kernels/planes.hpp"

namespace sluice::kernels {

std::string_view plane_name(Plane plane) {
  switch (plane) {
    case Plane::kWeight:
      return "weight";
    case Plane::kResidual:
      return "residual";
    case Plane::kMaster:
      return "master";
    case Plane::kMoment1:
      return "moment1";
    case Plane::kMoment2:
      return "moment2";
    case Plane::kScale1:
      return "scale1";
    case Plane::kScale2:
      return "scale2";
  }
  return "?";
}

PlaneFormat plane_format(Policy policy, Plane plane) {
  const auto dtype = [&]() -> DType {
    switch (plane) {
      case Plane::kWeight:
        return policy == Policy::kFp32         ? DType::kF32
               : policy == Policy::kFp16Master ? DType::kF16
                                               : DType::kBF16;
      case Plane::kResidual:
        return DType::kI16;
      case Plane::kMoment1:
      case Plane::kMoment2:
        return policy == Policy::kBf16Moments ? DType::kBF16
               : policy == Policy::kMoments8  ? DType::kU8
                                              : DType::kF32;
      case Plane::kMaster:
      case Plane::kScale1:
      case Plane::kScale2:
        break;
    }
    return DType::kF32;
  };
  const bool one_a_granule = plane == Plane::kScale1 || plane == Plane::kScale2;
  return {plane, dtype(), one_a_granule ? std::uint32_t{kGranuleElements} : 1};
}

std::vector<PlaneFormat> planes_of(Policy policy, const Optimizer& optimizer, DType frozen_dtype) {
  if (policy == Policy::kFrozen) return {{Plane::kWeight, frozen_dtype}};
  const Moments moments = kind_of(optimizer).moments;
  const bool first = has_first(moments), second = has_second(moments);
  const bool scaled = policy == Policy::kMoments8;
  std::vector<PlaneFormat> planes;
  const auto add_if = [&](bool has, Plane plane) {
    if (has) planes.push_back(plane_format(policy, plane));
  };
  add_if(true, Plane::kWeight);
  add_if(policy != Policy::kFp32 && policy != Policy::kFp16Master, Plane::kResidual);
  add_if(policy == Policy::kFp16Master, Plane::kMaster);
  add_if(first, Plane::kMoment1);
  add_if(second, Plane::kMoment2);
  add_if(first && scaled, Plane::kScale1);
  add_if(second && scaled, Plane::kScale2);
  return planes;
}

PlanePointers planes_from(const PlanePointers& planes, std::span<const PlaneFormat> formats,
                          std::size_t element) {
  PlanePointers from{};
  for (const PlaneFormat& format : formats) {
    at(from, format.plane) = at(planes, format.plane) + format.bytes(element);
  }
  return from;
}

}  // namespace sluice::kernels
