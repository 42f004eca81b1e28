#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "guarded.hpp"
#include "kernels/constants.hpp"
#include "kernels/convert.hpp"
#include "kernels/moments8.hpp"
#include "kernels/update.hpp"
#include "update_rules.hpp"

namespace sluice::kernels {

struct UpdateCase {
  std::string name;  ///< "bf16_split/sgd with momentum"
  Policy policy;
  Optimizer optimizer;
};

struct NamedOptimizer {
  const char* name;
  Optimizer optimizer;
};

/// Each rule with everything that it can be told to do.
inline std::vector<NamedOptimizer> every_rule() {
  return {{"adamw", AdamW{.lr = 3e-3, .weight_decay = 0.05}},
          {"adam", Adam{.lr = 3e-3}},
          {"adam with decay", Adam{.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.05}},
          {"adagrad", Adagrad{.lr = 1e-2, .lr_decay = 1e-2, .weight_decay = 0.05}},
          {"lion", Lion{.lr = 1e-3, .weight_decay = 0.05}},
          {"sgd", Sgd{.lr = 1e-2, .dampening = 0.5}},
          {"sgd with momentum", Sgd{.lr = 1e-2, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.05}},
          {"sgd with nesterov", Sgd{.lr = 1e-2, .momentum = 0.9, .nesterov = true}}};
}

inline std::vector<UpdateCase> every_case() {
  std::vector<UpdateCase> cases;
  for (const Policy policy : policies()) {
    if (policy == Policy::kFrozen) continue;
    for (const NamedOptimizer& rule : every_rule())
      cases.push_back({std::string(policy_name(policy)) + "/" + rule.name, policy, rule.optimizer});
  }
  return cases;
}

inline Optimizer with_lr(Optimizer optimizer, double lr) {
  std::visit([&](auto& rule) { rule.lr = lr; }, optimizer);
  return optimizer;
}

/// Ordinary, tiny, huge and special numbers mixed.
inline float any_float(std::mt19937_64& random) {
  switch (random() % 16) {
    case 0:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random()));  // anything, NaN and Inf too
    case 1:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random() & 0x80FFFFFF));  // denormal or nearly
    case 2:
      return random() % 2 == 0 ? 0.0f : -0.0f;
    default:
      return std::ldexp(std::normal_distribution<float>()(random), static_cast<int>(random() % 24) - 12);
  }
}

inline float ordinary_float(std::mt19937_64& random) { return std::normal_distribution<float>()(random); }

inline std::vector<FloatElement> elements_of(std::mt19937_64& random, std::size_t count,
                                             float (*value)(std::mt19937_64&)) {
  std::vector<FloatElement> elements(count);
  for (FloatElement& element : elements)
    element = {canonical(value(random)), value(random), std::fabs(value(random))};
  return elements;
}

inline std::vector<float> floats_of(std::mt19937_64& random, std::size_t count,
                                    float (*value)(std::mt19937_64&)) {
  std::vector<float> floats(count);
  for (float& x : floats) x = value(random);
  return floats;
}

/// The bf16 values of floats, and floats of them.
inline std::vector<std::uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves(values.size());
  f32_to_bf16(halves.data(), values.data(), values.size());
  return halves;
}
inline std::vector<float> from_bf16(const std::vector<std::uint16_t>& halves) {
  std::vector<float> values(halves.size());
  bf16_to_f32(values.data(), halves.data(), halves.size());
  return values;
}

using PlaneBytes = std::array<std::vector<std::uint8_t>, kPlaneKinds>;

/// Planes of a policy as bytes; those that it does not have are empty.
class Planes {
 public:
  Planes(Policy policy, const Optimizer& optimizer, std::size_t elements)
      : formats(planes_of(policy, optimizer, DType::kF32)), elements_(elements) {
    for (const PlaneFormat& format : formats)
      bytes[static_cast<std::size_t>(format.plane)].resize(format.bytes(elements));
  }

  template <class T>
  T* data(Plane plane) {
    return reinterpret_cast<T*>(bytes[static_cast<std::size_t>(plane)].data());
  }
  bool has(Plane plane) const {
    for (const PlaneFormat& format : formats)
      if (format.plane == plane) return true;
    return false;
  }
  PlanePointers pointers() {
    PlanePointers pointers{};
    for (const PlaneFormat& format : formats) at(pointers, format.plane) = data<std::byte>(format.plane);
    return pointers;
  }

  void store_masters(const std::vector<float>& masters) {
    if (has(Plane::kResidual)) {
      split_bf16(data<std::uint16_t>(Plane::kWeight), data<std::int16_t>(Plane::kResidual), masters.data(),
                 elements_);
    } else {
      auto* kept = data<float>(has(Plane::kMaster) ? Plane::kMaster : Plane::kWeight);
      for (std::size_t i = 0; i < elements_; ++i) kept[i] = canonical(masters[i]);
      if (has(Plane::kMaster)) f32_to_f16(data<std::uint16_t>(Plane::kWeight), kept, elements_);
    }
  }
  std::vector<float> masters() {
    std::vector<float> masters(elements_);
    if (has(Plane::kResidual)) {
      join_bf16_split(masters.data(), data<std::uint16_t>(Plane::kWeight),
                      data<std::int16_t>(Plane::kResidual), elements_);
    } else if (elements_ != 0) {
      std::memcpy(masters.data(), data<float>(has(Plane::kMaster) ? Plane::kMaster : Plane::kWeight),
                  elements_ * 4);
    }
    return masters;
  }
  std::vector<float> weights() {
    std::vector<float> weights(elements_);
    if (has(Plane::kResidual))
      bf16_to_f32(weights.data(), data<std::uint16_t>(Plane::kWeight), elements_);
    else if (has(Plane::kMaster))
      f16_to_f32(weights.data(), data<std::uint16_t>(Plane::kWeight), elements_);
    else
      weights = masters();
    return weights;
  }

  /// Moments to nearest.
  void store_moments(Plane plane, const std::vector<float>& values) {
    if (!has(plane)) return;
    const DType dtype = dtype_of(plane);
    if (dtype == DType::kU8)
      encode_moments8(data<std::uint8_t>(plane), data<float>(scale_of(plane)), values.data(), elements_,
                      kind_of(plane));
    else if (dtype == DType::kBF16)
      f32_to_bf16(data<std::uint16_t>(plane), values.data(), elements_);
    else if (elements_ != 0)
      std::memcpy(data<float>(plane), values.data(), elements_ * 4);
  }
  /// Zeros for moments that there are not.
  std::vector<float> moments(Plane plane) {
    std::vector<float> values(elements_);
    if (!has(plane)) return values;
    const DType dtype = dtype_of(plane);
    if (dtype == DType::kU8)
      decode_moments8(values.data(), data<std::uint8_t>(plane), data<float>(scale_of(plane)), elements_,
                      kind_of(plane));
    else if (dtype == DType::kBF16)
      bf16_to_f32(values.data(), data<std::uint16_t>(plane), elements_);
    else if (elements_ != 0)
      std::memcpy(values.data(), data<float>(plane), elements_ * 4);
    return values;
  }

  void store(const std::vector<FloatElement>& elements) {
    store_masters(member(elements, &FloatElement::weight));
    store_moments(Plane::kMoment1, member(elements, &FloatElement::moment1));
    store_moments(Plane::kMoment2, member(elements, &FloatElement::moment2));
  }
  /// What a rule sees.
  std::vector<FloatElement> elements() {
    const std::vector<float> p = masters(), m = moments(Plane::kMoment1), v = moments(Plane::kMoment2);
    std::vector<FloatElement> elements(elements_);
    for (std::size_t i = 0; i < elements_; ++i) elements[i] = {p[i], m[i], v[i]};
    return elements;
  }

  static std::vector<float> member(const std::vector<FloatElement>& elements, float FloatElement::*member) {
    std::vector<float> values;
    values.reserve(elements.size());
    for (const FloatElement& element : elements) values.push_back(element.*member);
    return values;
  }

  const std::vector<PlaneFormat> formats;
  PlaneBytes bytes;

 private:
  static Plane scale_of(Plane plane) { return plane == Plane::kMoment1 ? Plane::kScale1 : Plane::kScale2; }
  static Moment8 kind_of(Plane plane) {
    return plane == Plane::kMoment1 ? Moment8::kSigned : Moment8::kUnsigned;
  }
  DType dtype_of(Plane plane) const {
    for (const PlaneFormat& format : formats)
      if (format.plane == plane) return format.dtype;
    return DType::kBool;
  }

  std::size_t elements_;
};

/// The planes moved to memory that shows every access beyond them.
class GuardedPlanes {
 public:
  GuardedPlanes(const Planes& planes, std::size_t gap) {
    for (const PlaneFormat& format : planes.formats) {
      const auto plane = static_cast<std::size_t>(format.plane);
      guarded_[plane] =
          std::make_unique<Guarded<std::uint8_t>>(planes.bytes[plane], gap * dtype_bytes(format.dtype));
      at(pointers, format.plane) = reinterpret_cast<std::byte*>(guarded_[plane]->data());
    }
  }
  void copy_to(PlaneBytes& target) const {
    for (std::size_t plane = 0; plane < kPlaneKinds; ++plane)
      if (guarded_[plane]) target[plane] = guarded_[plane]->values();
  }
  bool intact() const {
    for (const auto& plane : guarded_)
      if (plane && !plane->intact()) return false;
    return true;
  }

  PlanePointers pointers{};

 private:
  std::array<std::unique_ptr<Guarded<std::uint8_t>>, kPlaneKinds> guarded_;
};

/// update() of all elements of planes in ordinary memory.
inline std::uint64_t update_planes(Planes& planes, Policy policy, const std::vector<float>& gradient,
                                   const Factors& factors, const Dither& dither = {},
                                   const Hashing& hashing = {}) {
  return update({.policy = policy,
                 .planes = planes.pointers(),
                 .gradient = reinterpret_cast<const std::byte*>(gradient.data()),
                 .gradient_plane = GradientPlane::kF32,
                 .elements = gradient.size()},
                factors, dither, hashing);
}

}  // namespace sluice::kernels
