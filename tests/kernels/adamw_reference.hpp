#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/adam_numbers.hpp"
#include "kernels/isa.hpp"
#include "kernels/update.hpp"

namespace sluice::kernels {

struct AdamWElement {
  float weight, moment1, moment2;
};

/// One element by the header's formula, an operation at a time, with or without fused multiply-adds as `isa`
/// has them.
inline AdamWElement adamw_one(AdamWElement e, float gradient, const Factors& f, Isa isa) {
  const auto multiply_add = [&](float a, float b, float c) {
    return fuses_multiply_add(isa) ? std::fma(a, b, c) : a * b + c;
  };
  const auto canonical = [](float x) { return std::isnan(x) ? std::bit_cast<float>(0x7FC00000u) : x; };
  const auto flush = [&](float x) { return std::fabs(x) < FLT_MIN ? 0.0f : canonical(x); };
  const float g = gradient * f.gradient;
  const float m = flush(
      multiply_add(g, f.numbers[AdamNumber::kOneMinusBeta1], f.numbers[AdamNumber::kBeta1] * e.moment1));
  const float v = flush(
      multiply_add(g * g, f.numbers[AdamNumber::kOneMinusBeta2], f.numbers[AdamNumber::kBeta2] * e.moment2));
  const float direction =
      m / multiply_add(std::sqrt(v), f.numbers[AdamNumber::kRootScale], f.numbers[AdamNumber::kEps]);
  const bool keep = f.numbers[AdamNumber::kStep] == 0.0f && f.numbers[AdamNumber::kDecay] == 1.0f;
  return {keep ? e.weight
               : canonical(multiply_add(-f.numbers[AdamNumber::kStep], direction,
                                        e.weight * f.numbers[AdamNumber::kDecay])),
          m, v};
}

/// AdamW in double for one element, with a bound of how far a float computation may be from it: every
/// rounding adds half an ulp (u = 2^-24 relative), every float factor another u, and each step carries the
/// old errors on.
class BoundedAdamW {
 public:
  explicit BoundedAdamW(double weight) : weight_(weight) {}

  void step(const sluice::AdamW& s, double gradient, double gradient_factor) {
    ++count_;
    const auto t = static_cast<double>(count_);
    const double g = gradient * gradient_factor;  // as a float it is off by 2u: factor, product
    const double m_new = (1.0 - s.beta1) * g;
    const double m_old = s.beta1 * moment1_;
    moment1_ = m_old + m_new;
    moment1_error_ = s.beta1 * moment1_error_ +
                     u * (2 * std::fabs(m_old) + 4 * std::fabs(m_new) + std::fabs(moment1_)) + FLT_MIN;

    const double v_new = (1.0 - s.beta2) * g * g;
    const double v_old = s.beta2 * moment2_;
    moment2_ = v_old + v_new;
    moment2_error_ = s.beta2 * moment2_error_ + u * (2 * v_old + 7 * v_new + moment2_) + FLT_MIN;

    const double root = std::sqrt(moment2_);
    const double root_error = root - std::sqrt(std::max(moment2_ - moment2_error_, 0.0)) + u * root;
    const double scale = 1.0 / std::sqrt(1.0 - std::pow(s.beta2, t));
    const double denominator = root * scale + s.eps;
    const double denominator_error = root_error * scale + u * (2 * root * scale + s.eps + denominator);
    const double direction = moment1_ / denominator;
    const double direction_error =
        (moment1_error_ + std::fabs(direction) * denominator_error) / (denominator - denominator_error) +
        u * std::fabs(direction);

    const double lr = s.lr / (1.0 - std::pow(s.beta1, t));
    const double decayed = weight_ * (1.0 - s.lr * s.weight_decay);
    weight_ = decayed - lr * direction;
    weight_error_ = weight_error_ + lr * direction_error +
                    u * (2 * std::fabs(decayed) + 2 * lr * std::fabs(direction) + std::fabs(weight_));
  }

  double weight() const { return weight_; }
  double moment1() const { return moment1_; }
  double moment2() const { return moment2_; }
  /// 1 % covers products of errors.
  double weight_error() const { return 1.01 * weight_error_; }
  double moment1_error() const { return 1.01 * moment1_error_; }
  double moment2_error() const { return 1.01 * moment2_error_; }

 private:
  static constexpr double u = 0x1p-24;
  std::uint64_t count_ = 0;
  double weight_;
  double moment1_ = 0, moment2_ = 0;
  double weight_error_ = 0, moment1_error_ = 0, moment2_error_ = 0;
};

}  // namespace sluice::kernels
