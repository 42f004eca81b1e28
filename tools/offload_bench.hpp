#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sluice/options.hpp"
#include "sluice/stats.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice::tools {

struct OffloadBenchOptions {
  std::uint64_t parameters = 0;  ///< elements of all layers together
  std::uint32_t layers = 16;
  std::uint32_t steps = 5;
  std::uint32_t micro_batches = 1;
  std::uint32_t tokens = 512;  ///< of a micro-batch; sets the simulated arithmetic
  double compute_tflops = 0;   ///< of the simulated arithmetic; 0: it takes no time
  Policy policy = Policy::kBf16Split;
  EngineOptions engine;
};

struct OffloadStep {
  double seconds = 0;  ///< forward + backward + step
  double forward_s = 0;
  double backward_s = 0;
  double step_s = 0;
  double stall_s = 0;  ///< of forward and backward, waiting for weights or for room for gradients
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};

struct OffloadBenchReport {
  std::vector<OffloadStep> steps;
  OffloadStep median;          ///< of each figure by itself
  double io_limit_s = 0;       ///< median of the last step's requests replayed without arithmetic
  double compute_limit_s = 0;  ///< median of the same chunks updated from frames without I/O
  double efficiency = 0;       ///< max(io_limit_s, compute_limit_s) / median.step_s
  std::uint64_t trainer_bytes = 0;
  Stats stats;
};

/// A training loop without a model: layers of equal size are fetched and released forward, then backward with
/// a gradient that was made beforehand, then stepped. One step that is not counted comes first, so that every
/// slot was written. Each counted step alternates with the two limits. `on_step` is called after each step,
/// in order. Errors: kInvalidArgument naming the option, its value and the accepted range; kAborted after an
/// interrupt; the engine's.
Result<OffloadBenchReport> run_offload_bench(const OffloadBenchOptions& options,
                                             const std::function<void(const OffloadStep&)>& on_step);

}  // namespace sluice::tools
