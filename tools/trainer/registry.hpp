#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/engine.hpp"
#include "trainer/parameters.hpp"
#include "trainer/shape.hpp"

namespace sluice::trainer {

/// A parameter of the engine under its own name; what is tied to it has none here.
struct NamedParameter {
  std::string name;
  ParameterId id;
  std::uint64_t elements = 0;
};

/// A model's tensors as an engine knows them: matrices in a group with weight decay, gains and the embedding
/// in one without, the head as another name of the embedding.
class Registry {
 public:
  struct Numbers {
    Policy policy = Policy::kBf16Split;
    Optimizer optimizer;  ///< of the matrices; the others' weight decay is 0
  };

  /// Registers all tensors. Requires: the engine is not sealed.
  static Result<Registry> add(Engine& engine, const Shape& shape, const Numbers& numbers);

  /// Another learning rate, from the next step on.
  Status set_learning_rate(Engine& engine, double lr);

  Policy policy() const { return numbers_.policy; }
  /// The part's tensors, in the order of tensors_of().
  std::span<const ParameterId> part(std::size_t index) const { return parts_[index].ids; }
  std::span<const std::uint64_t> part_elements(std::size_t index) const { return parts_[index].elements; }
  const std::vector<NamedParameter>& named() const { return named_; }

 private:
  Numbers numbers_;
  GroupId decayed_;
  GroupId plain_;
  struct Part {
    std::vector<ParameterId> ids;
    std::vector<std::uint64_t> elements;
  };
  std::vector<Part> parts_;
  std::vector<NamedParameter> named_;
};

/// A model's parameters through one pass: fetches a part, widens it to fp32 and lets it go at once, so that
/// the engine may read ahead while the model computes. Lifetime: of the registry and the pass.
class PassParameters : public Parameters {
 public:
  PassParameters(const Registry& registry, Pass& pass) : registry_(registry), pass_(pass) {}
  Status load(std::size_t part, std::span<float> target) override;
  Status add_gradients(std::size_t part, std::span<const float> source) override;

 private:
  const Registry& registry_;
  Pass& pass_;
};

}  // namespace sluice::trainer
