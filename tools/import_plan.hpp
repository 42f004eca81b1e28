#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/model_reader.hpp"
#include "formats/safetensors_reader.hpp"
#include "sluice/status.hpp"
#include "tools/state_description.hpp"

namespace sluice::tools {

/// A tensor of one of the files.
struct SourceTensor {
  const formats::SafetensorsReader* file = nullptr;
  const formats::TensorInfo* info = nullptr;

  explicit operator bool() const { return info != nullptr; }
  Status read(Range elements, std::span<std::byte> target) const {
    return file->read(*info, elements, target);
  }
};

struct PlannedParameter {
  std::string name;
  std::uint32_t group = 0;
  SourceTensor first_values;  ///< the masters' or the frozen weights'
  // Empty where all begin at zero, or the optimizer has none.
  SourceTensor moment1;
  SourceTensor moment2;
  SourceTensor step;
};

/// What to register with an engine, in this order, and where its values are. Everything in the files was checked.
/// Invariant: what is not frozen has first values of F32, BF16 or F16; a moment has its parameter's shape.
struct ImportPlan {
  std::unique_ptr<formats::ModelReader> model;
  std::unique_ptr<formats::SafetensorsReader> optimizer;  ///< null: none was there
  std::uint64_t steps = 0;                                ///< that were finished
  std::uint64_t seed = 0;
  std::vector<StateDescription::Group> groups;
  std::vector<PlannedParameter> parameters;
  std::vector<StateDescription::Alias> aliases;
  SourceTensor user_bytes;
};

/// Opens a model and the optimizer's file beside it. `policy` as ImportOptions::policy. Without an optimizer's file
/// tensors of other dtypes than F32, BF16 and F16 are frozen.
/// Errors: as import_store().
Result<ImportPlan> plan_import(const std::string& source, std::optional<Policy> policy);

}  // namespace sluice::tools
