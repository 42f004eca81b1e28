#include "trainer/registry.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/optimizer_numbers.hpp"
#include "trainer/parallel.hpp"

namespace sluice::trainer {
namespace {

// Matrices keep the variance of what goes through them; the sum of all layers' products does too.
Initial first_values(const Shape& shape, const TensorSpec& tensor) {
  const float keep = 1.0F / std::sqrt(static_cast<float>(tensor.rows));
  switch (tensor.role) {
    case Role::kGain:
      return Constant{1.0F};
    case Role::kMatrix:
      return Normal{0.0F, keep};
    case Role::kResidual:
      return Normal{0.0F, keep / std::sqrt(2.0F * static_cast<float>(shape.layers))};
    case Role::kEmbedding:
    case Role::kHead:
      break;
  }
  return Normal{0.0F, 1.0F / std::sqrt(static_cast<float>(shape.width))};
}

std::vector<std::int64_t> dimensions(const TensorSpec& tensor) {
  const auto cols = static_cast<std::int64_t>(tensor.cols);
  if (tensor.role == Role::kGain) return {cols};
  return {static_cast<std::int64_t>(tensor.rows), cols};
}

// Calls work(first, end) for blocks of `count` elements, on all threads.
template <class Work>
void for_each_block(std::size_t count, const Work& work) {
  constexpr std::size_t kBlock = 16384;
  for_each((count + kBlock - 1) / kBlock, [&](std::size_t block, std::size_t) {
    work(block * kBlock, std::min(count, (block + 1) * kBlock));
  });
}

void widen_bf16(std::span<float> target, const void* source) {
  const auto* const from = static_cast<const std::uint16_t*>(source);
  for_each_block(target.size(), [=](std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      target[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16);
    }
  });
}

void copy_f32(std::span<float> target, const void* source) {
  const auto* const from = static_cast<const float*>(source);
  for_each_block(target.size(), [=](std::size_t first, std::size_t end) {
    std::copy(from + first, from + end, &target[first]);
  });
}

// An exponent of all ones is Inf or NaN; every other half is a float's digits, with the exponent's bias 112 less. The
// product is exact, denormals' too.
void widen_f16(std::span<float> target, const void* source) {
  const auto* const from = static_cast<const std::uint16_t*>(source);
  for_each_block(target.size(), [=](std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      const std::uint32_t sign = static_cast<std::uint32_t>(from[i] & 0x8000U) << 16;
      const std::uint32_t digits = static_cast<std::uint32_t>(from[i] & 0x7FFFU) << 13;
      const std::uint32_t bits = (from[i] & 0x7C00U) == 0x7C00U
                                     ? digits | 0x7F800000U
                                     : std::bit_cast<std::uint32_t>(std::bit_cast<float>(digits) * 0x1p112F);
      target[i] = std::bit_cast<float>(bits | sign);
    }
  });
}

void widen(std::span<float> target, const ConstTensor& tensor) {
  if (tensor.dtype == DType::kBF16) return widen_bf16(target, tensor.data);
  if (tensor.dtype == DType::kF16) return widen_f16(target, tensor.data);
  copy_f32(target, tensor.data);
}

Optimizer without_decay(const Optimizer& optimizer) { return with_number(optimizer, "weight_decay", 0); }

}  // namespace

Result<Registry> Registry::add(Engine& engine, const Shape& shape, const Numbers& numbers) {
  Registry registry;
  registry.numbers_ = numbers;
  const auto add_group = [&](std::string name, const Optimizer& optimizer) {
    return engine.add_group({.name = std::move(name),
                             .policy = numbers.policy,
                             .optimizer = optimizer,
                             .gradient = GradientStorage::kFp32,
                             .communicator = nullptr});
  };
  const Result<GroupId> decayed = add_group("matrices", numbers.optimizer);
  if (!decayed.ok()) return decayed.status();
  const Result<GroupId> plain = add_group("gains and embedding", without_decay(numbers.optimizer));
  if (!plain.ok()) return plain.status();
  registry.decayed_ = *decayed;
  registry.plain_ = *plain;

  for (std::size_t part = 0; part < part_count(shape); ++part) {
    registry.parts_.emplace_back();
    for (const TensorSpec& tensor : tensors_of(shape, part)) {
      const bool decays = tensor.role == Role::kMatrix || tensor.role == Role::kResidual;
      const Result<ParameterId> id = tensor.role == Role::kHead
                                         ? engine.add_alias(tensor.name, registry.part(0)[0])
                                         : engine.add_parameter({.name = tensor.name,
                                                                 .shape = dimensions(tensor),
                                                                 .group = decays ? *decayed : *plain,
                                                                 .initial = first_values(shape, tensor)});
      if (!id.ok()) return id.status();
      registry.parts_[part].ids.push_back(*id);
      registry.parts_[part].elements.push_back(tensor.elements());
      if (tensor.role != Role::kHead) registry.named_.push_back({tensor.name, *id, tensor.elements()});
    }
  }
  return registry;
}

Status Registry::set_learning_rate(Engine& engine, double lr) {
  const Optimizer optimizer = with_number(numbers_.optimizer, "lr", lr);
  SLUICE_RETURN_IF_ERROR(engine.update_group(decayed_, optimizer));
  return engine.update_group(plain_, without_decay(optimizer));
}

Status PassParameters::load(std::size_t part, std::span<float> target) {
  const auto ids = registry_.part(part);
  const Result<Lease> lease = pass_.fetch(ids);
  if (!lease.ok()) return lease.status();
  for (const ParameterId id : ids) {
    const ConstTensor tensor = (*lease)[id];
    const std::span<float> floats = target.first(tensor.elements);
    widen(floats, tensor);
    target = target.subspan(tensor.elements);
  }
  return {};
}

Status PassParameters::add_gradients(std::size_t part, std::span<const float> source) {
  const auto ids = registry_.part(part);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(pass_.add_gradient(ids[i], Gradient::f32(source.data())));
    source = source.subspan(registry_.part_elements(part)[i]);
  }
  return {};
}

}  // namespace sluice::trainer
