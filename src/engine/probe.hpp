#pragma once

#include <cstdint>

#include "sluice/engine.hpp"
#include "sluice/status.hpp"

namespace sluice::engine {

/// Which chunks of the last step a replay goes through.
enum class Replayed : std::uint8_t {
  kAll,
  kNotEarly,  ///< those whose early update was not kept: what step() itself had to do
};

/// Repeats the last step's requests (offset, size, direction, order, depth) without computing anything; the
/// state stays.
/// Requires: a finished step, no pass.
/// Returns: seconds.
Result<double> replay_step_io(Engine& engine, Replayed chunks = Replayed::kAll);

/// Repeats the last step's updates on whatever the frames hold, without reading or writing. Records on the
/// drive stay; records in memory are really updated, with gradients of no meaning: for benchmarks only.
/// Requires: a finished step, no pass.
/// Returns: seconds.
Result<double> replay_step_compute(Engine& engine, Replayed chunks = Replayed::kAll);

/// Flushes all drives twice, one after the other, as a commit does around its record.
/// Requires: a store, no pass.
/// Returns: seconds.
Result<double> bare_flushes(Engine& engine);

}  // namespace sluice::engine
