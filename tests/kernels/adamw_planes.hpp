#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "adamw_reference.hpp"
#include "guarded.hpp"
#include "kernels/convert.hpp"
#include "kernels/update.hpp"

namespace sluice::kernels {

/// update() of planes in arrays.
inline std::uint64_t update_planes(Policy policy, std::initializer_list<std::pair<Plane, void*>> planes,
                                   const void* gradient, GradientPlane type, std::size_t elements,
                                   const Factors& factors, const Hashing& hashing = {}) {
  Run run{.policy = policy,
          .gradient = static_cast<const std::byte*>(gradient),
          .gradient_plane = type,
          .elements = elements};
  for (const auto& [plane, data] : planes) at(run.planes, plane) = static_cast<std::byte*>(data);
  return update(run, factors, {}, hashing);
}

/// The planes of `fp32` over guarded memory, with the same face as those of `bf16_split` below.
class Fp32State {
 public:
  explicit Fp32State(const std::vector<AdamWElement>& elements, std::size_t gap = 0)
      : elements_(elements.size()),
        weight_(plane(elements, &AdamWElement::weight), gap),
        moment1_(plane(elements, &AdamWElement::moment1), gap),
        moment2_(plane(elements, &AdamWElement::moment2), gap) {}

  std::uint64_t update(const void* gradient, GradientPlane type, const Factors& factors) {
    return update_planes(Policy::kFp32,
                         {{Plane::kWeight, weight_.data()},
                          {Plane::kMoment1, moment1_.data()},
                          {Plane::kMoment2, moment2_.data()}},
                         gradient, type, elements_, factors);
  }
  std::vector<float> masters() const { return weight_.values(); }
  std::vector<float> moments1() const { return moment1_.values(); }
  std::vector<float> moments2() const { return moment2_.values(); }
  bool intact() const { return weight_.intact() && moment1_.intact() && moment2_.intact(); }

  static std::vector<float> plane(const std::vector<AdamWElement>& elements, float AdamWElement::*member) {
    std::vector<float> values;
    for (const AdamWElement& element : elements) values.push_back(element.*member);
    return values;
  }

 private:
  std::size_t elements_;
  Guarded<float> weight_, moment1_, moment2_;
};

class Bf16SplitState {
 public:
  explicit Bf16SplitState(const std::vector<AdamWElement>& elements, std::size_t gap = 0)
      : elements_(elements.size()),
        weight_(std::vector<std::uint16_t>(elements.size()), gap),
        residual_(std::vector<std::int16_t>(elements.size()), gap),
        moment1_(Fp32State::plane(elements, &AdamWElement::moment1), gap),
        moment2_(Fp32State::plane(elements, &AdamWElement::moment2), gap) {
    const std::vector<float> masters = Fp32State::plane(elements, &AdamWElement::weight);
    split_bf16(weight_.data(), residual_.data(), masters.data(), elements_);
  }

  std::uint64_t update(const void* gradient, GradientPlane type, const Factors& factors) {
    return update_planes(Policy::kBf16Split,
                         {{Plane::kWeight, weight_.data()},
                          {Plane::kResidual, residual_.data()},
                          {Plane::kMoment1, moment1_.data()},
                          {Plane::kMoment2, moment2_.data()}},
                         gradient, type, elements_, factors);
  }
  std::vector<float> masters() {
    std::vector<float> joined(elements_);
    join_bf16_split(joined.data(), weight_.data(), residual_.data(), elements_);
    return joined;
  }
  std::vector<std::uint16_t> weights() const { return weight_.values(); }
  std::vector<std::int16_t> residuals() const { return residual_.values(); }
  std::vector<float> moments1() const { return moment1_.values(); }
  std::vector<float> moments2() const { return moment2_.values(); }
  bool intact() const {
    return weight_.intact() && residual_.intact() && moment1_.intact() && moment2_.intact();
  }

 private:
  std::size_t elements_;
  Guarded<std::uint16_t> weight_;
  Guarded<std::int16_t> residual_;
  Guarded<float> moment1_, moment2_;
};

}  // namespace sluice::kernels
