#include "engine/training.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice::sim {

PlainModel small_model() {
  PlainModel model;
  const AdamW rule{.lr = 1e-2, .weight_decay = 0.1};
  model.add("alpha", 40000, Policy::kBf16Split, GradientStorage::kFp32, rule);
  model.add("beta", 20000, Policy::kFp32, GradientStorage::kFp32, rule);
  model.add("gamma", 16385, Policy::kBf16Split, GradientStorage::kBf16Once, rule);
  model.add("delta", 5000, Policy::kFrozen, GradientStorage::kFp32, rule);
  model.add("epsilon", 300, Policy::kBf16Split, GradientStorage::kFp32, rule);
  return model;
}

std::uint64_t device_bytes(const PlainTensor& tensor) {
  return (tensor.elements + 255) / 256 * 256 * (tensor.policy == Policy::kFp32 ? 4 : 2);
}

std::uint64_t largest_device_bytes(const PlainModel& model) {
  std::uint64_t largest = 0;
  for (const PlainTensor& tensor : model.tensors) largest = std::max(largest, device_bytes(tensor));
  return largest;
}

std::vector<float> gradient_values(std::uint64_t step, std::uint64_t micro, std::size_t tensor,
                                   std::uint64_t elements) {
  std::vector<float> values(elements);
  std::uint64_t bits = 1 + step * 7 + micro * 3 + tensor * 1009;
  for (float& value : values) {
    bits = bits * 6364136223846793005 + 1442695040888963407;
    value = static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
  }
  return values;
}

bool contributes(const PlainTensor& tensor, std::uint64_t micro) {
  return tensor.policy != Policy::kFrozen && (tensor.storage != GradientStorage::kBf16Once || micro == 0);
}

StepResult step_model(PlainModel& model, std::uint64_t step, const StepOptions& options) {
  for (std::uint64_t micro = 0; micro < options.micro_batches; ++micro)
    for (std::size_t tensor = 0; tensor < model.tensors.size(); ++tensor) {
      if (!contributes(model.tensors[tensor], micro)) continue;
      const std::vector<float> values = gradient_values(step, micro, tensor, model.tensors[tensor].elements);
      model.add_gradient(static_cast<std::uint32_t>(tensor), values.data(), DType::kF32);
    }
  return model.step(options);
}

Status Training::open(EngineOptions options, engine::Parts parts) {
  engine.reset();
  Result<std::shared_ptr<Device>> device = make_host_device();
  SLUICE_RETURN_IF_ERROR(device.status());
  Result<std::unique_ptr<Engine>> made =
      engine::Access::create(std::move(options), *device, make_single_communicator(), std::move(parts));
  SLUICE_RETURN_IF_ERROR(made.status());
  engine = std::move(made).value();
  Result<std::vector<ParameterId>> registered = register_with(*engine, model);
  SLUICE_RETURN_IF_ERROR(registered.status());
  parameters = std::move(registered).value();
  Result<SealReport> sealed = engine->seal();
  SLUICE_RETURN_IF_ERROR(sealed.status());
  report = std::move(sealed).value();
  return {};
}

Status Training::fetch(Pass& pass, std::size_t tensor) {
  const Result<Lease> lease = pass.fetch({&parameters[tensor], 1});
  SLUICE_RETURN_IF_ERROR(lease.status());
  const PlainTensor& expected = model.tensors[tensor];
  if (std::memcmp((*lease)[parameters[tensor]].data, expected.weights(), expected.weight_bytes()) != 0)
    return Status(Code::kInternal, "weights of " + expected.name + " differ");
  return {};
}

Status Training::add_gradient(Pass& pass, std::uint64_t step, std::uint64_t micro, std::size_t tensor) {
  const std::vector<float> values = gradient_values(step, micro, tensor, model.tensors[tensor].elements);
  return pass.add_gradient(parameters[tensor], Gradient::f32(values.data()));
}

Status Training::train(std::uint64_t step, const StepOptions& options) {
  Result<Pass> pass = engine->begin_step(options);
  SLUICE_RETURN_IF_ERROR(pass.status());
  for (std::uint64_t micro = 0; micro < options.micro_batches; ++micro) {
    for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor)
      SLUICE_RETURN_IF_ERROR(fetch(*pass, tensor));
    for (std::size_t tensor = parameters.size(); tensor-- > 0;) {
      SLUICE_RETURN_IF_ERROR(fetch(*pass, tensor));
      if (contributes(model.tensors[tensor], micro))
        SLUICE_RETURN_IF_ERROR(add_gradient(*pass, step, micro, tensor));
    }
  }
  return pass->step().status();
}

std::string Training::run(std::uint64_t steps, const StepOptions& options) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (const Status trained = train(step, options); !trained.ok()) return trained.to_string();
    step_model(model, step, options);
  }
  std::string differs = difference();
  if (const Status closed = engine->close(); differs.empty() && !closed.ok()) return closed.to_string();
  return differs;
}

std::string Training::difference() const { return compare(*engine, model, parameters); }

Result<EngineOptions> least_budgets(EngineOptions options, const PlainModel& model) {
  options.max_fetch_bytes = largest_device_bytes(model);
  options.device_budget_bytes = options.max_fetch_bytes + 4096;
  options.host_budget_bytes = kUnlimited;
  Training probe{.model = model, .engine = {}, .parameters = {}, .report = {}};
  SLUICE_RETURN_IF_ERROR(probe.open(options));
  options.host_budget_bytes = probe.report.least_host_bytes;
  return options;
}

}  // namespace sluice::sim
