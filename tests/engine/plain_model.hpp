#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::sim {

/// A parameter with all its state in plain arrays, whole: what the engine must equal bit for bit.
struct PlainTensor {
  std::string name;
  std::uint64_t elements = 0;
  Policy policy = Policy::kBf16Split;
  GradientStorage storage = GradientStorage::kFp32;
  AdamW rule;
  std::vector<std::uint16_t> weight16;  // bf16_split, frozen bf16
  std::vector<std::int16_t> residual;
  std::vector<float> weight32;  // fp32
  std::vector<float> moment1, moment2;
  std::uint64_t count = 0;
  std::vector<float> gradient;  // of the step under way
  bool contributed = false;

  /// The first value of element i, as given to the engine by first_values().
  float first_value(std::uint64_t i) const;
  InitialCallback first_values() const;
  const void* weights() const;
  std::uint64_t weight_bytes() const;
};

/// The whole of it: the same calls as a training pass, without placement.
class PlainModel {
 public:
  /// The index in `tensors`, in order of registration.
  std::uint32_t add(std::string name, std::uint64_t elements, Policy policy, GradientStorage storage,
                    AdamW rule);
  void add_gradient(std::uint32_t tensor, const void* values, DType dtype);
  StepResult step(const StepOptions& options);
  void abort();

  std::vector<PlainTensor> tensors;

 private:
  std::uint64_t steps_ = 0;
};

/// Registers the model's tensors with an engine: one group each, so that every setting may differ.
Result<std::vector<ParameterId>> register_with(Engine& engine, const PlainModel& model);

/// memcmp, but for empty ranges at null.
inline int differing_bytes(const void* a, const void* b, std::size_t bytes) {
  return bytes == 0 ? 0 : std::memcmp(a, b, bytes);
}

/// Empty when every view of every tensor is equal bit for bit, else what differs first.
std::string compare(const Engine& engine, const PlainModel& model,
                    const std::vector<ParameterId>& parameters);

}  // namespace sluice::sim
