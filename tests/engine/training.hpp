#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/parts.hpp"
#include "engine/plain_model.hpp"
#include "sluice/sluice.hpp"

namespace sluice::sim {

/// Chunks (of 16 Ki elements) of every class, parameters over several chunks and several in one; at the least
/// host budget more gradients than frames.
PlainModel small_model();

/// Bytes of a tensor's range in device memory, in a world of one.
std::uint64_t device_bytes(const PlainTensor& tensor);
/// The largest of them: the least max_fetch_bytes.
std::uint64_t largest_device_bytes(const PlainModel& model);

/// The gradient that micro-batch `micro` of step `step` gives: the same on every call.
std::vector<float> gradient_values(std::uint64_t step, std::uint64_t micro, std::size_t tensor,
                                   std::uint64_t elements);
/// Whether a tensor gets a gradient in this micro-batch.
bool contributes(const PlainTensor& tensor, std::uint64_t micro);

/// What the training pass `step` does to the plain arrays.
StepResult step_model(PlainModel& model, std::uint64_t step, const StepOptions& options);

/// An engine and the same model in plain arrays.
struct Training {
  /// Makes, fills and seals an engine of real parts.
  Status open(EngineOptions options, engine::Parts parts = {});

  /// Fetches one parameter; "weights of …" as kInternal when a byte differs from the plain arrays'.
  Status fetch(Pass& pass, std::size_t tensor);
  Status add_gradient(Pass& pass, std::uint64_t step, std::uint64_t micro, std::size_t tensor);
  /// A whole training pass on the engine alone: each micro-batch fetches forwards and backwards.
  Status train(std::uint64_t step, const StepOptions& options);
  /// `steps` passes on both, compared at the end and closed.
  /// Returns: empty, or what went wrong or differs first.
  std::string run(std::uint64_t steps, const StepOptions& options);
  /// compare() of the two.
  std::string difference() const;

  PlainModel model = small_model();
  std::unique_ptr<Engine> engine;
  std::vector<ParameterId> parameters;
  SealReport report;
};

/// Options that keep to the least host and device budget for the model.
/// Requires: directories, chunk_elements and undo set.
Result<EngineOptions> least_budgets(EngineOptions options, const PlainModel& model);

}  // namespace sluice::sim
