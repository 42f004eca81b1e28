#pragma once

#include "sluice/engine.hpp"
#include "sluice/status.hpp"

namespace sluice::engine {

/// Repeats the last step's requests (offset, size, direction, order, depth) without computing anything; the
/// state stays.
/// Requires: a finished step, no pass.
/// Returns: seconds.
Result<double> replay_step_io(Engine& engine);

/// Repeats the last step's updates on whatever the frames hold, without reading or writing. Records on the
/// drive stay; records in memory are really updated, with gradients of no meaning: for benchmarks only.
/// Requires: a finished step, no pass.
/// Returns: seconds.
Result<double> replay_step_compute(Engine& engine);

/// Flushes all drives twice, one after the other, as a commit does around its record.
/// Requires: a store, no pass.
/// Returns: seconds.
Result<double> bare_flushes(Engine& engine);

}  // namespace sluice::engine
