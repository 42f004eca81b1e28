#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "sluice/engine.hpp"
#include "trainer/model.hpp"
#include "trainer/registry.hpp"

namespace sluice::trainer {

struct GenerateOptions {
  std::size_t bytes = 0;
  std::uint64_t seed = 0;
  double temperature = 0.7;  ///< > 0
};

/// Continues `prompt`, one forward-only pass a byte.
/// Requires: the prompt is not empty; no pass is open.
Result<std::string> generate(Engine& engine, const Registry& registry, Model& model, std::size_t context,
                             std::span<const std::uint8_t> prompt, const GenerateOptions& options);

}  // namespace sluice::trainer
