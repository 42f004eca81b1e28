#include "engine/registry.hpp"

#include <fmt/format.h>

#include <utility>

namespace sluice::engine {
namespace {

/// More elements than any drive holds; keeps every product of sizes within 64 bits.
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;

Result<std::uint64_t> count_elements(const ParameterOptions& options) {
  std::uint64_t elements = 1;
  bool empty = false;
  for (std::int64_t extent : options.shape) {
    if (extent < 0)
      return Status(Code::kInvalidArgument,
                    fmt::format("parameter '{}': shape holds {}, accepted: >= 0", options.name, extent));
    if (extent == 0)
      empty = true;
    else if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements) ||
             elements > kMaxElements)
      return Status(Code::kInvalidArgument,
                    fmt::format("parameter '{}': more than 2^48 elements", options.name));
  }
  return empty ? 0 : elements;
}

}  // namespace

Status Registry::take_name(const std::string& name) {
  if (name.size() > store::kNameBytesMax)
    return Status(Code::kInvalidArgument, fmt::format("parameter name of {} bytes, accepted: up to {}",
                                                      name.size(), store::kNameBytesMax));
  if (name.empty()) return Status(Code::kInvalidArgument, "parameter name = '', accepted: not empty");
  if (!names_.insert(name).second)
    return Status(Code::kAlreadyExists, fmt::format("parameter '{}' is registered already", name));
  return {};
}

Result<GroupId> Registry::add_group(GroupOptions options,
                                    const std::shared_ptr<Communicator>& engine_communicator) {
  if (options.name.size() > store::kNameBytesMax)
    return Status(Code::kInvalidArgument, fmt::format("group name of {} bytes, accepted: up to {}",
                                                      options.name.size(), store::kNameBytesMax));
  if (options.policy != Policy::kFrozen) {
    const std::string group = "group '" + options.name + "'";
    SLUICE_RETURN_IF_ERROR(validate(options.optimizer).with_context(group));
    SLUICE_RETURN_IF_ERROR(validate(options.policy, options.optimizer).with_context(group));
  }
  if (!options.communicator) options.communicator = engine_communicator;
  Group group{std::move(options), 0, 1};
  group.rank = group.options.communicator->rank();
  group.world = group.options.communicator->world();
  groups_.push_back(std::move(group));
  return GroupId{static_cast<std::uint32_t>(groups_.size() - 1)};
}

Result<ParameterId> Registry::add_parameter(ParameterOptions options) {
  if (options.group.index >= groups_.size())
    return Status(Code::kInvalidArgument,
                  fmt::format("parameter '{}': group = {}, accepted: one of the {} of this engine",
                              options.name, options.group.index, groups_.size()));
  Result<std::uint64_t> elements = count_elements(options);
  if (!elements.ok()) return elements.status();
  SLUICE_RETURN_IF_ERROR(take_name(options.name));
  const auto index = static_cast<std::uint32_t>(tensors_.size());
  tensors_.push_back(Tensor{.name = std::move(options.name),
                            .shape = std::move(options.shape),
                            .elements = *elements,
                            .group = options.group.index,
                            .initial = std::move(options.initial)});
  const std::uint64_t bytes = *elements * dtype_bytes(weight_dtype(index));
  tensors_.back().kept =
      options.residency == Residency::kDevice || bytes < group_of(index).options.keep_gathered_below_bytes;
  tensor_of_.push_back(index);
  return ParameterId{static_cast<std::uint32_t>(tensor_of_.size() - 1)};
}

Result<ParameterId> Registry::add_alias(std::string name, ParameterId parameter) {
  Result<std::uint32_t> tensor = tensor_of(parameter);
  if (!tensor.ok()) return tensor.status();
  const GroupOptions& group = group_of(*tensor).options;
  if (group.policy != Policy::kFrozen && group.gradient == GradientStorage::kBf16Once)
    return Status(Code::kInvalidArgument,
                  fmt::format("alias '{}' of '{}': a kBf16Once group takes one contribution a step, "
                              "two names would give two",
                              name, tensors_[*tensor].name));
  SLUICE_RETURN_IF_ERROR(take_name(name));
  tensor_of_.push_back(*tensor);
  aliases_.push_back({std::move(name), *tensor});
  return ParameterId{static_cast<std::uint32_t>(tensor_of_.size() - 1)};
}

Status Registry::update_group(GroupId group, const Optimizer& optimizer) {
  if (group.index >= groups_.size())
    return Status(Code::kInvalidArgument, fmt::format("group = {}, accepted: one of the {} of this engine",
                                                      group.index, groups_.size()));
  GroupOptions& options = groups_[group.index].options;
  SLUICE_RETURN_IF_ERROR(validate(optimizer).with_context("group '" + options.name + "'"));
  if (optimizer.index() != options.optimizer.index())
    return Status(Code::kInvalidArgument,
                  fmt::format("group '{}': another optimizer, accepted: other numbers", options.name));
  options.optimizer = optimizer;
  return {};
}

Result<std::uint32_t> Registry::tensor_of(ParameterId parameter) const {
  if (parameter.index >= tensor_of_.size())
    return Status(Code::kInvalidArgument,
                  fmt::format("parameter id {}, accepted: one of the {} of this engine", parameter.index,
                              tensor_of_.size()));
  return tensor_of_[parameter.index];
}

DType Registry::weight_dtype(std::uint32_t tensor) const {
  const GroupOptions& group = group_of(tensor).options;
  return store::planes_of(group.policy, group.optimizer, group.frozen_dtype).front().dtype;
}

std::vector<store::ParameterSpec> Registry::specs() const {
  std::vector<store::ParameterSpec> specs;
  specs.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) {
    const Group& group = groups_[tensor.group];
    specs.push_back({.name = tensor.name,
                     .elements = tensor.elements,
                     .group = tensor.group,
                     .policy = group.options.policy,
                     .optimizer = group.options.optimizer,
                     .frozen_dtype = group.options.frozen_dtype,
                     .gradient = group.options.gradient,
                     .rank = group.rank,
                     .world = group.world});
  }
  return specs;
}

std::vector<store::StoredParameter> Registry::stored_parameters() const {
  std::vector<store::StoredParameter> parameters;
  parameters.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) {
    const Group& group = groups_[tensor.group];
    parameters.push_back({.name = tensor.name,
                          .shape = tensor.shape,
                          .group = tensor.group,
                          .policy = group.options.policy,
                          .optimizer = static_cast<std::uint8_t>(group.options.optimizer.index()),
                          .frozen_dtype = group.options.frozen_dtype,
                          .gradient = group.options.gradient,
                          .rank = group.rank,
                          .world = group.world});
  }
  return parameters;
}

}  // namespace sluice::engine
