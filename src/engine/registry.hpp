#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "sluice/options.hpp"
#include "store/catalog.hpp"
#include "store/layout.hpp"

namespace sluice::engine {

/// A parameter that has state of its own: one registered by add_parameter. Aliases share it.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
  std::uint32_t group = 0;
  Initial initial;
  bool kept = false;             ///< stays gathered in device memory
  std::uint64_t step_count = 0;  ///< steps in which it had a gradient
};

struct Group {
  GroupOptions options;
  std::uint32_t rank = 0;  ///< in options.communicator, never null here
  std::uint32_t world = 1;
};

/// What the trainer has registered.
/// Invariant: tensor_of.size() = parameters registered, aliases included; every entry < tensors.size().
class Registry {
 public:
  /// Errors of the add_*: kInvalidArgument with the field, its value and what is accepted; kAlreadyExists.
  Result<GroupId> add_group(GroupOptions options, const std::shared_ptr<Communicator>& engine_communicator);
  Result<ParameterId> add_parameter(ParameterOptions options);
  Result<ParameterId> add_alias(std::string name, ParameterId parameter);
  Status update_group(GroupId group, const Optimizer& optimizer);

  /// The tensor of a parameter or of what it is tied to.
  /// Errors: kInvalidArgument for a foreign id.
  Result<std::uint32_t> tensor_of(ParameterId parameter) const;

  /// How many are registered, aliases included.
  std::uint32_t parameters() const { return static_cast<std::uint32_t>(tensor_of_.size()); }
  std::vector<Tensor>& tensors() { return tensors_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Group>& groups() const { return groups_; }
  const Group& group_of(std::uint32_t tensor) const { return groups_[tensors_[tensor].group]; }
  bool frozen(std::uint32_t tensor) const { return group_of(tensor).options.policy == Policy::kFrozen; }

  /// The dtype of a tensor's weight plane.
  DType weight_dtype(std::uint32_t tensor) const;
  /// One a tensor, in order.
  std::vector<store::ParameterSpec> specs() const;
  /// The same as a store's catalog holds them.
  std::vector<store::StoredParameter> stored_parameters() const;
  const std::vector<store::StoredAlias>& aliases() const { return aliases_; }

 private:
  Status take_name(const std::string& name);

  std::vector<Group> groups_;
  std::vector<Tensor> tensors_;
  std::vector<std::uint32_t> tensor_of_;
  std::vector<store::StoredAlias> aliases_;
  std::unordered_set<std::string> names_;
};

}  // namespace sluice::engine
