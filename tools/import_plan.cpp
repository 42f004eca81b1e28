#include "tools/import_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
using formats::ModelReader;
using formats::SafetensorsReader;

constexpr std::string_view kAliasPrefix = "alias.";
constexpr std::uint64_t kUserBytesMax = 1 << 30;  // that an engine takes

bool trainable(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

Status contradict(const std::string& path, const std::string& tensor, std::string_view what) {
  return {Code::kDataLoss, fmt::format("{}: tensor {}: {}", path, formats::in_quotes(tensor), what)};
}

// Groups and parameters of a model without an optimizer's file: one group a policy and dtype.
class Grouping {
 public:
  explicit Grouping(std::optional<Policy> policy) : policy_(policy.value_or(Policy::kBf16Split)) {}

  std::uint32_t of(DType dtype, std::vector<StateDescription::Group>& groups) {
    const bool frozen = policy_ == Policy::kFrozen || !trainable(dtype);
    const std::string name = frozen ? fmt::format("frozen {}", dtype_name(dtype)) : "trained";
    const auto [entry, added] = index_.try_emplace(name, static_cast<std::uint32_t>(groups.size()));
    if (added) {
      groups.push_back({.name = name,
                        .policy = frozen ? Policy::kFrozen : policy_,
                        .optimizer = AdamW{},
                        .frozen_dtype = frozen ? dtype : DType::kBF16});
    }
    return entry->second;
  }

 private:
  const Policy policy_;
  std::map<std::string, std::uint32_t> index_;
};

Status plan_aliases(const ModelReader& model, ImportPlan& plan) {
  for (const SafetensorsReader& file : model.files()) {
    for (const auto& [key, target] : file.metadata()) {
      if (!key.starts_with(kAliasPrefix)) continue;
      const std::string name = key.substr(kAliasPrefix.size());
      const bool known =
          std::ranges::any_of(plan.aliases, [&](const auto& alias) { return alias.name == name; });
      if (known) continue;  // each file of a model says it
      const auto parameter = std::ranges::find(plan.parameters, target, &PlannedParameter::name);
      if (parameter == plan.parameters.end())
        return {Code::kDataLoss, fmt::format("{}: metadata {}: there is no tensor {}", file.path(), key,
                                             formats::in_quotes(target))};
      plan.aliases.push_back({name, static_cast<std::uint32_t>(parameter - plan.parameters.begin())});
    }
  }
  return {};
}

Status plan_weights(std::optional<Policy> policy, ImportPlan& plan) {
  Grouping grouping(policy);
  for (const ModelReader::Tensor& tensor : plan.model->tensors()) {
    plan.parameters.push_back({.name = tensor.info->name,
                               .group = grouping.of(tensor.info->dtype, plan.groups),
                               .first_values = {tensor.file, tensor.info},
                               .moment1 = {},
                               .moment2 = {},
                               .step = {}});
  }
  return plan_aliases(*plan.model, plan);
}

// The tensor of the optimizer's file that belongs to a parameter's weight.
Result<SourceTensor> belonging(const SafetensorsReader& file, const formats::TensorInfo& weight,
                               std::string_view suffix, DType dtype,
                               const std::vector<std::uint64_t>& shape) {
  const std::string name = weight.name + std::string(suffix);
  const formats::TensorInfo* info = file.find(name);
  if (info == nullptr) return contradict(file.path(), name, "is not there");
  if (info->dtype != dtype)
    return contradict(file.path(), name,
                      fmt::format("is {}, not {}", dtype_name(info->dtype), dtype_name(dtype)));
  if (info->shape != shape)
    return contradict(file.path(), name, "has another shape than the weight that it belongs to");
  return SourceTensor{&file, info};
}

Status plan_stepped(const SafetensorsReader& file, const formats::TensorInfo& weight,
                    const Optimizer& optimizer, PlannedParameter& parameter) {
  if (file.find(weight.name + std::string(kMasterSuffix)) != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(parameter.first_values,
                            belonging(file, weight, kMasterSuffix, DType::kF32, weight.shape));
  }
  if (!trainable(parameter.first_values.info->dtype)) {
    return contradict(
        parameter.first_values.file->path(), weight.name,
        fmt::format("is {}, which cannot be trained; accepted: F32, BF16, F16", dtype_name(weight.dtype)));
  }
  const Moments moments = kind_of(optimizer).moments;
  if (moments != Moments::kSecond) {
    SLUICE_ASSIGN_OR_RETURN(parameter.moment1,
                            belonging(file, weight, kMoment1Suffix, DType::kF32, weight.shape));
  }
  if (moments != Moments::kFirst) {
    SLUICE_ASSIGN_OR_RETURN(parameter.moment2,
                            belonging(file, weight, kMoment2Suffix, DType::kF32, weight.shape));
  }
  SLUICE_ASSIGN_OR_RETURN(parameter.step, belonging(file, weight, kStepSuffix, DType::kU64, {}));
  return {};
}

// The group's policy as it is asked for: what was frozen stays so.
Status override_policy(Policy policy, StateDescription::Group& group) {
  if (group.policy == Policy::kFrozen) return {};
  group.policy = policy;
  return validate(policy, group.optimizer).with_context("group " + formats::in_quotes(group.name));
}

Status plan_described(const StateDescription& description, std::optional<Policy> policy, ImportPlan& plan) {
  plan.steps = description.steps;
  plan.seed = description.seed;
  plan.groups = description.groups;
  plan.aliases = description.aliases;
  const bool freeze = policy == Policy::kFrozen;
  if (policy) {
    for (StateDescription::Group& group : plan.groups)
      SLUICE_RETURN_IF_ERROR(override_policy(*policy, group));
  }
  const SafetensorsReader& file = *plan.optimizer;
  for (const StateDescription::Parameter& described : description.parameters) {
    const ModelReader::Tensor* weight = plan.model->find(described.name);
    if (weight == nullptr)
      return contradict(file.path(), described.name, "is described but not in the model");
    StateDescription::Group& group = plan.groups[described.group];
    PlannedParameter parameter{.name = described.name,
                               .group = described.group,
                               .first_values = {weight->file, weight->info},
                               .moment1 = {},
                               .moment2 = {},
                               .step = {}};
    if (group.policy != Policy::kFrozen) {
      SLUICE_RETURN_IF_ERROR(plan_stepped(file, *weight->info, group.optimizer, parameter));
    } else if (freeze && description.groups[described.group].policy != Policy::kFrozen) {
      group.frozen_dtype = weight->info->dtype;  // of a stepped group all are written alike
    }
    if (group.policy == Policy::kFrozen && group.frozen_dtype != weight->info->dtype) {
      return contradict(weight->file->path(), described.name,
                        fmt::format("is {}, its frozen group holds {}", dtype_name(weight->info->dtype),
                                    dtype_name(group.frozen_dtype)));
    }
    plan.parameters.push_back(std::move(parameter));
  }
  if (plan.parameters.size() != plan.model->tensors().size()) {
    return {Code::kDataLoss, fmt::format("{}: describes {} parameters, the model has {} tensors", file.path(),
                                         plan.parameters.size(), plan.model->tensors().size())};
  }
  if (const formats::TensorInfo* bytes = file.find(user_bytes_name(0))) plan.user_bytes = {&file, bytes};
  if (plan.user_bytes && plan.user_bytes.info->dtype != DType::kU8)
    return contradict(file.path(), plan.user_bytes.info->name, "is not U8");
  if (plan.user_bytes && plan.user_bytes.info->bytes > kUserBytesMax) {
    return contradict(
        file.path(), plan.user_bytes.info->name,
        fmt::format("is {} bytes, at most {} are accepted", plan.user_bytes.info->bytes, kUserBytesMax));
  }
  return {};
}

// The path of the optimizer's file that belongs to a source; it need not exist.
std::string optimizer_path_of(const std::string& source) {
  std::error_code ignored;
  return optimizer_path(fs::is_directory(source, ignored) ? (fs::path(source) / formats::kModelName).string()
                                                          : source);
}

}  // namespace

Result<ImportPlan> plan_import(const std::string& source, std::optional<Policy> policy) {
  ImportPlan plan;
  SLUICE_ASSIGN_OR_RETURN(ModelReader model, ModelReader::open(source));
  plan.model = std::make_unique<ModelReader>(std::move(model));
  const std::string path = optimizer_path_of(source);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    SLUICE_RETURN_IF_ERROR(plan_weights(policy, plan));
    return plan;
  }
  SLUICE_ASSIGN_OR_RETURN(SafetensorsReader optimizer, SafetensorsReader::open(path));
  plan.optimizer = std::make_unique<SafetensorsReader>(std::move(optimizer));
  SLUICE_ASSIGN_OR_RETURN(const StateDescription description,
                          decode_description(plan.optimizer->metadata(), path));
  SLUICE_RETURN_IF_ERROR(plan_described(description, policy, plan));
  return plan;
}

}  // namespace sluice::tools
