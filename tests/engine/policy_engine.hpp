#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "engine/small_engine.hpp"
#include "kernels/convert.hpp"
#include "kernels/moments8.hpp"
#include "kernels/update.hpp"

namespace sluice::sim {

/// A policy and a rule that steps it.
struct PolicyCase {
  Policy policy = Policy::kBf16Split;
  Optimizer optimizer = {};

  bool has(View view) const {
    const Moments moments = kind_of(optimizer).moments;
    if (view == View::kMoment1) return moments != Moments::kSecond;
    return view != View::kMoment2 || moments != Moments::kFirst;
  }
  std::vector<View> views() const {
    std::vector<View> all{View::kWeight, View::kMaster, View::kMoment1, View::kMoment2};
    std::erase_if(all, [&](View view) { return !has(view); });
    return all;
  }
  bool is_coded(View view) const {
    return policy == Policy::kMoments8 && (view == View::kMoment1 || view == View::kMoment2);
  }
  std::string name() const { return fmt::format("{}_{}", policy_name(policy), kind_of(optimizer).name); }
  friend std::ostream& operator<<(std::ostream& out, const PolicyCase& one) { return out << one.name(); }
};

/// All of them, with numbers under which every term of a rule counts.
inline std::vector<PolicyCase> policy_cases() {
  const Optimizer rules[] = {AdamW{.lr = 1e-2, .weight_decay = 0.1}, Adam{.lr = 1e-2, .weight_decay = 0.1},
                             Adagrad{.lr = 1e-2, .lr_decay = 0.1, .weight_decay = 0.1},
                             Lion{.lr = 1e-2, .weight_decay = 0.1},
                             Sgd{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}};
  std::vector<PolicyCase> cases;
  for (const Policy policy : policies())
    for (const Optimizer& rule : rules)
      if (policy != Policy::kFrozen && validate(policy, rule).ok()) cases.push_back({policy, rule});
  return cases;
}
inline std::string name_of(const testing::TestParamInfo<PolicyCase>& info) { return info.param.name(); }

/// Numbers in (-1, 1), the same for the same salt; in (0, 1) for second moments.
inline std::vector<float> some_values(std::uint64_t elements, std::uint64_t salt, View view = View::kMaster) {
  std::vector<float> values(elements);
  std::uint64_t bits = salt * 0x9e3779b97f4a7c15 + 1;
  for (float& value : values) {
    bits = bits * 6364136223846793005 + 1442695040888963407;
    value = static_cast<float>(bits >> 40) * 0x1p-23F - 1;
    if (view == View::kMoment2) value *= value;
  }
  return values;
}

/// What a view shows of values that it was given, whole granules from the first on.
inline std::vector<float> kept_as(const PolicyCase& of, View view, std::vector<float> values) {
  const std::size_t count = values.size();
  const bool split = of.policy != Policy::kFp32 && of.policy != Policy::kFp16Master;
  std::vector<std::uint16_t> halves(count);
  if (of.is_coded(view)) {
    const auto kind = view == View::kMoment1 ? kernels::Moment8::kSigned : kernels::Moment8::kUnsigned;
    std::vector<std::uint8_t> codes(count);
    std::vector<float> scales(count / 256 + 1);
    kernels::encode_moments8(codes.data(), scales.data(), values.data(), count, kind);
    kernels::decode_moments8(values.data(), codes.data(), scales.data(), count, kind);
  } else if (view == View::kWeight && split) {
    std::vector<std::int16_t> residuals(count);
    kernels::split_bf16(halves.data(), residuals.data(), values.data(), count);
    kernels::bf16_to_f32(values.data(), halves.data(), count);
  } else if (view == View::kWeight && of.policy == Policy::kFp16Master) {
    kernels::f32_to_f16(halves.data(), values.data(), count);
    kernels::f16_to_f32(values.data(), halves.data(), count);
  } else if (of.policy == Policy::kBf16Moments && (view == View::kMoment1 || view == View::kMoment2)) {
    kernels::f32_to_bf16(halves.data(), values.data(), count);
    kernels::bf16_to_f32(values.data(), halves.data(), count);
  }
  return values;
}

/// A parameter's planes in plain arrays, whole, as the kernels see them.
class PlainPlanes {
 public:
  PlainPlanes(std::string name, PolicyCase of, const std::vector<float>& masters)
      : name_(std::move(name)), of_(std::move(of)), elements_(masters.size()) {
    for (const kernels::PlaneFormat& format : kernels::planes_of(of_.policy, of_.optimizer, DType::kBF16))
      planes_[format.plane].resize(format.bytes(elements_));
    if (of_.policy == Policy::kFp16Master) {
      kernels::f32_to_f16(as<std::uint16_t>(kernels::Plane::kWeight), masters.data(), elements_);
      std::copy(masters.begin(), masters.end(), as<float>(kernels::Plane::kMaster));
    } else if (of_.policy == Policy::kFp32) {
      std::copy(masters.begin(), masters.end(), as<float>(kernels::Plane::kWeight));
    } else {
      kernels::split_bf16(as<std::uint16_t>(kernels::Plane::kWeight),
                          as<std::int16_t>(kernels::Plane::kResidual), masters.data(), elements_);
    }
  }

  void step(const std::vector<float>& gradient, std::uint64_t seed) {
    kernels::Run run{.policy = of_.policy,
                     .gradient = reinterpret_cast<const std::byte*>(gradient.data()),
                     .gradient_plane = kernels::GradientPlane::kF32,
                     .elements = elements_};
    for (auto& [plane, bytes] : planes_) kernels::at(run.planes, plane) = bytes.data();
    ++count_;
    kernels::update(run, kernels::make_factors(of_.optimizer, count_, 1),
                    {.key = kernels::dither_key(seed, name_, count_), .first_element = 0});
  }

  std::vector<float> read(View view) {
    using kernels::Plane;
    std::vector<float> values(elements_);
    if (view == View::kMaster && of_.policy != Policy::kFp16Master && of_.policy != Policy::kFp32) {
      kernels::join_bf16_split(values.data(), as<std::uint16_t>(Plane::kWeight),
                               as<std::int16_t>(Plane::kResidual), elements_);
      return values;
    }
    if (of_.is_coded(view)) {
      const bool first = view == View::kMoment1;
      kernels::decode_moments8(values.data(), as<std::uint8_t>(first ? Plane::kMoment1 : Plane::kMoment2),
                               as<float>(first ? Plane::kScale1 : Plane::kScale2), elements_,
                               first ? kernels::Moment8::kSigned : kernels::Moment8::kUnsigned);
      return values;
    }
    const Plane plane = view == View::kMoment1                                       ? Plane::kMoment1
                        : view == View::kMoment2                                     ? Plane::kMoment2
                        : view == View::kMaster && of_.policy == Policy::kFp16Master ? Plane::kMaster
                                                                                     : Plane::kWeight;
    const bool weight = plane == Plane::kWeight, moment = plane != Plane::kWeight && plane != Plane::kMaster;
    if (weight && of_.policy == Policy::kFp16Master)
      kernels::f16_to_f32(values.data(), as<std::uint16_t>(plane), elements_);
    else if ((weight && of_.policy != Policy::kFp32) || (moment && of_.policy == Policy::kBf16Moments))
      kernels::bf16_to_f32(values.data(), as<std::uint16_t>(plane), elements_);
    else
      std::copy_n(as<float>(plane), elements_, values.begin());
    return values;
  }

 private:
  template <class T>
  T* as(kernels::Plane plane) {
    return reinterpret_cast<T*>(planes_.at(plane).data());
  }

  std::string name_;
  PolicyCase of_;
  std::uint64_t elements_ = 0, count_ = 0;
  std::map<kernels::Plane, std::vector<std::byte>> planes_;
};

/// Parameters of one policy and rule, of sizes around granules, tiles and chunks.
class PolicyEngine : public EngineTest {
 protected:
  struct Parameter {
    std::string name;
    std::uint64_t elements = 0;
    ParameterId id = {};
    std::vector<float> first = {};
  };
  using State = std::map<std::string, std::vector<Values>>;

  static std::vector<Parameter> all_sizes() {
    std::vector<Parameter> parameters;
    for (const std::uint64_t elements : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{255},
                                         std::uint64_t{256}, std::uint64_t{257}, 4 * kChunk + 300})
      parameters.push_back({.name = fmt::format("p{}", elements), .elements = elements});
    return parameters;
  }

  Result<SealReport> try_open(const PolicyCase& of) {
    case_ = of;
    make();
    std::uint64_t salt = 1;
    for (Parameter& parameter : parameters) {
      parameter.first = some_values(parameter.elements, ++salt);
      const auto initial = [&parameter](Range range, DType, void* target) {
        if (range.count > 0) std::memcpy(target, &parameter.first[range.first], range.count * sizeof(float));
        return Status();
      };
      parameter.id = add(parameter.name, {dim(parameter.elements)},
                         {.name = parameter.name, .policy = of.policy, .optimizer = of.optimizer},
                         InitialCallback(initial));
    }
    return engine->seal();
  }
  SealReport open(const PolicyCase& of) {
    const Result<SealReport> report = try_open(of);
    EXPECT_THAT(report, IsOk());
    return report.ok() ? *report : SealReport{};
  }
  /// With as few frames as the engine accepts, so that records live on the drive.
  SealReport open_out_of_core(const PolicyCase& of) {
    options.host_budget_bytes = kUnlimited;
    options.host_budget_bytes = open(of).least_host_bytes;
    clear_drive();
    SealReport report = open(of);
    EXPECT_EQ(report.resident_chunks, 0U);
    return report;
  }
  void clear_drive() {
    engine.reset();
    std::filesystem::remove_all(options.directories.front());
    std::filesystem::create_directory(options.directories.front());
  }

  std::vector<float> gradient_of(const Parameter& parameter, std::uint64_t step) const {
    return some_values(parameter.elements, 1000 * step + parameter.elements);
  }
  void step_all(std::uint64_t at) {
    Pass pass = begin();
    for (const Parameter& parameter : parameters) give(pass, parameter.id, gradient_of(parameter, at));
    step(pass);
  }
  State state_of_all() const {
    State state;
    for (const Parameter& parameter : parameters) {
      std::vector<Values>& views = state[parameter.name];
      for (const View view : case_.views()) views.push_back(read(parameter.id, view));
      views.push_back({static_cast<float>(count(parameter.id))});
    }
    return state;
  }

  std::vector<Parameter> parameters = all_sizes();
  PolicyCase case_;
};

}  // namespace sluice::sim
