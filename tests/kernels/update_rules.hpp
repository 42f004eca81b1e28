#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <variant>

#include "kernels/isa.hpp"
#include "sluice/optimizer.hpp"

namespace sluice::kernels {

/// The update rules one element at a time, over the arithmetic that `Math` stands for: that of the kernels, bit for
/// bit (FloatMath), or double with a bound of how far floats may be from it (BoundedMath).
template <class Math>
struct RuleStep {
  using Number = typename Math::Number;
  struct Element {
    Number weight, moment1, moment2;
  };

  Math math;
  double t;
  Number g;  // gradient, unscaled
  Element e;

  Element operator()(const AdamW& s) {
    const Number direction = adam_direction(s.beta1, s.beta2, s.eps);
    if (s.lr == 0) return e;
    e.weight = math.fma(math.factor(-s.lr / (1 - std::pow(s.beta1, t))), direction,
                        math.mul(e.weight, math.factor(1 - s.lr * s.weight_decay)));
    return e;
  }
  Element operator()(const Adam& s) {
    decay_gradient(s.weight_decay);
    const Number direction = adam_direction(s.beta1, s.beta2, s.eps);
    return step_along(direction, s.lr / (1 - std::pow(s.beta1, t)));
  }
  Element operator()(const Adagrad& s) {
    decay_gradient(s.weight_decay);
    e.moment2 = math.flush(math.fma(g, g, e.moment2));
    return step_along(math.div(g, math.add(math.sqrt(e.moment2), eps_factor(s.eps))),
                      s.lr / (1 + (t - 1) * s.lr_decay));
  }
  Element operator()(const Lion& s) {
    const Number c = math.fma(g, math.factor(1 - s.beta1), math.mul(math.factor(s.beta1), e.moment1));
    e.moment1 = math.flush(math.fma(g, math.factor(1 - s.beta2), math.mul(math.factor(s.beta2), e.moment1)));
    if (s.lr == 0) return e;
    e.weight = math.fma(math.factor(-s.lr), math.sign(c),
                        math.mul(e.weight, math.factor(1 - s.lr * s.weight_decay)));
    return e;
  }
  Element operator()(const Sgd& s) {
    decay_gradient(s.weight_decay);
    const bool restart = t == 1 || s.momentum == 0;
    e.moment1 = math.flush(
        restart ? g
                : math.fma(g, math.factor(1 - s.dampening), math.mul(math.factor(s.momentum), e.moment1)));
    return step_along(s.nesterov ? math.fma(math.factor(s.momentum), e.moment1, g) : e.moment1, s.lr);
  }

 private:
  Number eps_factor(double eps) { return math.factor(std::max(eps, double{FLT_MIN})); }
  void decay_gradient(double weight_decay) {
    if (weight_decay != 0) g = math.fma(math.factor(weight_decay), e.weight, g);
  }
  Number adam_direction(double beta1, double beta2, double eps) {
    e.moment1 = math.flush(math.fma(g, math.factor(1 - beta1), math.mul(math.factor(beta1), e.moment1)));
    e.moment2 =
        math.flush(math.fma(math.mul(g, g), math.factor(1 - beta2), math.mul(math.factor(beta2), e.moment2)));
    const Number root_scale = math.factor(1 / std::sqrt(1 - std::pow(beta2, t)));
    return math.div(e.moment1, math.fma(math.sqrt(e.moment2), root_scale, eps_factor(eps)));
  }
  Element step_along(Number direction, double lr) {
    if (lr != 0) e.weight = math.fma(math.factor(-lr), direction, e.weight);
    return e;
  }
};

/// One element stepped by the rule of `optimizer` to the count t.
template <class Math, class Number = typename Math::Number>
typename RuleStep<Math>::Element stepped(const Math& math, const Optimizer& optimizer, std::uint64_t t,
                                         double gradient_factor, typename RuleStep<Math>::Element element,
                                         const Number& gradient) {
  return std::visit(
      RuleStep<Math>{math, static_cast<double>(t), math.mul(gradient, math.factor(gradient_factor)), element},
      optimizer);
}

inline float canonical(float x) { return std::isnan(x) ? std::bit_cast<float>(0x7FC00000u) : x; }

/// What the kernels compute on an instruction set.
struct FloatMath {
  using Number = float;
  bool fuses = true;

  float factor(double x) const { return static_cast<float>(x); }
  float mul(float a, float b) const { return a * b; }
  float add(float a, float b) const { return a + b; }
  float div(float a, float b) const { return a / b; }
  float fma(float a, float b, float c) const { return fuses ? std::fma(a, b, c) : a * b + c; }
  float sqrt(float a) const { return std::sqrt(a); }
  float flush(float a) const { return std::fabs(a) < FLT_MIN ? 0.0f : canonical(a); }
  float sign(float a) const { return std::isnan(a) ? a : static_cast<float>((a > 0) - (a < 0)); }
};

/// A value computed in double, and how far a float computation may be from it: each operation carries the errors of
/// what it is given on and adds half an ulp of its result, u times it.
struct Bounded {
  double value = 0;
  double error = 0;
};

struct BoundedMath {
  using Number = Bounded;
  static constexpr double u = 0x1p-24;

  Bounded rounded(double value, double error) const {
    return {value, error + u * (std::fabs(value) + error) + 0x1p-149};
  }
  Bounded factor(double x) const { return {x, u * std::fabs(x)}; }
  Bounded mul(const Bounded& a, const Bounded& b) const {
    return rounded(a.value * b.value,
                   std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error);
  }
  Bounded add(const Bounded& a, const Bounded& b) const {
    return rounded(a.value + b.value, a.error + b.error);
  }
  Bounded div(const Bounded& a, const Bounded& b) const {
    const double value = a.value / b.value;
    return rounded(value,
                   (a.error + std::fabs(value) * b.error) / std::max(std::fabs(b.value) - b.error, 0.0));
  }
  // Rounding the product too covers targets that do not fuse.
  Bounded fma(const Bounded& a, const Bounded& b, const Bounded& c) const { return add(mul(a, b), c); }
  Bounded sqrt(const Bounded& a) const {
    const double value = std::sqrt(a.value);
    return rounded(value, value - std::sqrt(std::max(a.value - a.error, 0.0)));
  }
  Bounded flush(const Bounded& a) const { return {a.value, a.error + FLT_MIN}; }
  Bounded sign(const Bounded& a) const {
    return {static_cast<double>((a.value > 0) - (a.value < 0)), std::fabs(a.value) > a.error ? 0.0 : 2.0};
  }
};

using FloatElement = RuleStep<FloatMath>::Element;
using BoundedElement = RuleStep<BoundedMath>::Element;

}  // namespace sluice::kernels
