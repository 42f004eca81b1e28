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

std::vector<PlaneFormat> planes_of(Policy policy, const Optimizer& optimizer, DType frozen_dtype) {
  std::vector<PlaneFormat> planes;
  const auto add = [&](Plane plane, DType dtype) { planes.push_back({plane, dtype}); };
  switch (policy) {
    case Policy::kFrozen:
      return {{Plane::kWeight, frozen_dtype}};
    case Policy::kFp32:
      add(Plane::kWeight, DType::kF32);
      break;
    case Policy::kFp16Master:
      add(Plane::kWeight, DType::kF16);
      add(Plane::kMaster, DType::kF32);
      break;
    case Policy::kBf16Split:
    case Policy::kBf16Moments:
    case Policy::kMoments8:
      add(Plane::kWeight, DType::kBF16);
      add(Plane::kResidual, DType::kI16);
      break;
  }
  const Moments moments = kind_of(optimizer).moments;
  const bool first = moments != Moments::kSecond, second = moments != Moments::kFirst;
  const DType dtype = policy == Policy::kBf16Moments ? DType::kBF16
                      : policy == Policy::kMoments8  ? DType::kU8
                                                     : DType::kF32;
  if (first) add(Plane::kMoment1, dtype);
  if (second) add(Plane::kMoment2, dtype);
  if (policy != Policy::kMoments8) return planes;
  if (first) planes.push_back({Plane::kScale1, DType::kF32, kGranuleElements});
  if (second) planes.push_back({Plane::kScale2, DType::kF32, kGranuleElements});
  return planes;
}

}  // namespace sluice::kernels
