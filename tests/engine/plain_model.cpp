#include "engine/plain_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/convert.hpp"
#include "kernels/gradient.hpp"
#include "kernels/update.hpp"

namespace sluice::sim {
namespace {

kernels::GradientDType kernel_dtype(DType dtype) {
  return dtype == DType::kBF16  ? kernels::GradientDType::kBF16
         : dtype == DType::kF16 ? kernels::GradientDType::kF16
                                : kernels::GradientDType::kF32;
}

/// All of a stepped tensor.
kernels::Run run_of(PlainTensor& tensor) {
  kernels::Run run{.policy = tensor.policy,
                   .gradient = reinterpret_cast<const std::byte*>(tensor.gradient.data()),
                   .gradient_plane = kernels::GradientPlane::kF32,
                   .elements = tensor.elements};
  const auto set = [&](kernels::Plane plane, void* data) {
    kernels::at(run.planes, plane) = static_cast<std::byte*>(data);
  };
  if (tensor.policy == Policy::kFp32) {
    set(kernels::Plane::kWeight, tensor.weight32.data());
  } else {
    set(kernels::Plane::kWeight, tensor.weight16.data());
    set(kernels::Plane::kResidual, tensor.residual.data());
  }
  set(kernels::Plane::kMoment1, tensor.moment1.data());
  set(kernels::Plane::kMoment2, tensor.moment2.data());
  return run;
}

}  // namespace

float PlainTensor::first_value(std::uint64_t i) const {
  const std::uint64_t bits = (i + 1 + std::hash<std::string>()(name)) * 0x9e3779b97f4a7c15;
  return static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
}

InitialCallback PlainTensor::first_values() const {
  PlainTensor copy;  // of the name alone, which is all that first_value needs
  copy.name = name;
  return [copy](Range range, DType dtype, void* target) {
    for (std::uint64_t i = 0; i < range.count; ++i) {
      const float value = copy.first_value(range.first + i);
      if (dtype == DType::kF32)
        static_cast<float*>(target)[i] = value;
      else
        kernels::f32_to_bf16(static_cast<std::uint16_t*>(target) + i, &value, 1);
    }
    return Status();
  };
}

const void* PlainTensor::weights() const {
  return policy == Policy::kFp32 ? static_cast<const void*>(weight32.data()) : weight16.data();
}
std::uint64_t PlainTensor::weight_bytes() const { return elements * (policy == Policy::kFp32 ? 4 : 2); }

std::uint32_t PlainModel::add(std::string name, std::uint64_t elements, Policy policy,
                              GradientStorage storage, AdamW rule) {
  PlainTensor tensor;
  tensor.name = std::move(name);
  tensor.elements = elements;
  tensor.policy = policy;
  tensor.storage = storage;
  tensor.rule = rule;
  std::vector<float> values(elements);
  for (std::uint64_t i = 0; i < elements; ++i) values[i] = tensor.first_value(i);
  if (policy == Policy::kFp32) {
    tensor.weight32 = values;
  } else {
    tensor.weight16.resize(elements);
    tensor.residual.resize(elements);
    if (policy == Policy::kFrozen)
      kernels::f32_to_bf16(tensor.weight16.data(), values.data(), elements);
    else
      kernels::split_bf16(tensor.weight16.data(), tensor.residual.data(), values.data(), elements);
  }
  if (policy != Policy::kFrozen) {
    tensor.moment1.resize(elements);
    tensor.moment2.resize(elements);
    tensor.gradient.resize(elements);
  }
  tensors.push_back(std::move(tensor));
  return static_cast<std::uint32_t>(tensors.size() - 1);
}

void PlainModel::add_gradient(std::uint32_t index, const void* values, DType dtype) {
  PlainTensor& tensor = tensors[index];
  if (tensor.storage == GradientStorage::kBf16Once) {
    std::vector<std::uint16_t> rounded(tensor.elements);
    kernels::store_bf16(rounded.data(), values, kernel_dtype(dtype), tensor.elements, nullptr);
    kernels::bf16_to_f32(tensor.gradient.data(), rounded.data(), tensor.elements);
  } else {
    kernels::accumulate_f32(tensor.gradient.data(), values, kernel_dtype(dtype), tensor.elements,
                            tensor.contributed ? kernels::Accumulate::kAdd : kernels::Accumulate::kStore,
                            nullptr);
  }
  tensor.contributed = true;
}

StepResult PlainModel::step(const StepOptions& options) {
  kernels::NormDelta norm;
  std::vector<float> sink;
  for (const PlainTensor& tensor : tensors) {
    if (!tensor.contributed) continue;
    sink.resize(tensor.elements);
    kernels::accumulate_f32(sink.data(), tensor.gradient.data(), kernels::GradientDType::kF32,
                            tensor.elements, kernels::Accumulate::kStore, &norm);
  }
  StepResult result;
  const double scale = options.loss_scale * options.gradient_divisor;
  result.norm = norm.nonfinite_granules > 0 ? std::numeric_limits<double>::infinity()
                                            : std::sqrt(norm.squares.value()) / scale;
  result.skipped = norm.nonfinite_granules > 0 && options.non_finite == NonFinite::kSkipStep;
  if (!result.skipped) {
    double factor = 1 / scale;
    if (options.max_norm != kNoClipping)
      factor = std::min(1.0, options.max_norm / (result.norm + 1e-6)) / scale;
    for (PlainTensor& tensor : tensors) {
      if (!tensor.contributed) continue;
      kernels::update(run_of(tensor), kernels::make_factors(tensor.rule, ++tensor.count, factor));
    }
    ++steps_;
  }
  result.step = steps_;
  abort();
  return result;
}

void PlainModel::abort() {
  for (PlainTensor& tensor : tensors) tensor.contributed = false;
}

Result<std::vector<ParameterId>> register_with(Engine& engine, const PlainModel& model) {
  std::vector<ParameterId> parameters;
  for (const PlainTensor& tensor : model.tensors) {
    const Result<GroupId> group = engine.add_group({.name = tensor.name,
                                                    .policy = tensor.policy,
                                                    .optimizer = tensor.rule,
                                                    .gradient = tensor.storage,
                                                    .communicator = {}});
    if (!group.ok()) return group.status();
    const Result<ParameterId> parameter =
        engine.add_parameter({.name = tensor.name,
                              .shape = {static_cast<std::int64_t>(tensor.elements)},
                              .group = *group,
                              .initial = tensor.first_values()});
    if (!parameter.ok()) return parameter.status();
    parameters.push_back(*parameter);
  }
  return parameters;
}

std::string compare(const Engine& engine, const PlainModel& model,
                    const std::vector<ParameterId>& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const PlainTensor& tensor = model.tensors[i];
    const Range all{0, tensor.elements};
    const auto differs = [&](View view, DType dtype, const void* expected, const char* what) -> std::string {
      std::vector<std::byte> got(tensor.elements * dtype_bytes(dtype));
      const Status status = engine.read(parameters[i], view, all, got.data(), dtype);
      if (!status.ok()) return fmt::format("{} of {}: {}", what, tensor.name, status.to_string());
      if (differing_bytes(got.data(), expected, got.size()) == 0) return {};
      std::size_t at = 0;
      while (got[at] == static_cast<const std::byte*>(expected)[at]) ++at;
      return fmt::format("{} of {} differ first in element {} of {}", what, tensor.name,
                         at / dtype_bytes(dtype), tensor.elements);
    };
    std::string text = differs(View::kWeight, tensor.policy == Policy::kFp32 ? DType::kF32 : DType::kBF16,
                               tensor.weights(), "weights");
    if (text.empty() && tensor.policy != Policy::kFrozen) {
      std::vector<float> master = tensor.weight32;
      if (tensor.policy == Policy::kBf16Split) {
        master.resize(tensor.elements);
        kernels::join_bf16_split(master.data(), tensor.weight16.data(), tensor.residual.data(),
                                 tensor.elements);
      }
      text = differs(View::kMaster, DType::kF32, master.data(), "masters");
      if (text.empty()) text = differs(View::kMoment1, DType::kF32, tensor.moment1.data(), "first moments");
      if (text.empty()) text = differs(View::kMoment2, DType::kF32, tensor.moment2.data(), "second moments");
      std::uint64_t count = 0;
      const Status status = engine.read(parameters[i], View::kCount, {0, 1}, &count, DType::kU64);
      if (text.empty() && (!status.ok() || count != tensor.count))
        text = fmt::format("count of {} is {}, not {} ({})", tensor.name, count, tensor.count,
                           status.to_string());
    }
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace sluice::sim
