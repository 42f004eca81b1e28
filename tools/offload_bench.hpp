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
  Optimizer optimizer = AdamW{};
  bool overlap = true;  ///< records are updated while backward goes on
  /// Steps between two measurements, of a commit and of bare flushes by turns; 0: a scratch store.
  std::uint32_t commit_every = 0;
  EngineOptions engine;
};

struct OffloadStep {
  double seconds = 0;  ///< forward + backward + step
  double forward_s = 0;
  double backward_s = 0;
  double step_s = 0;
  double last_s = 0;   ///< backward of the last micro-batch + step: where updates may overlap
  double stall_s = 0;  ///< of forward and backward, waiting for weights or for room for gradients
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};

struct OffloadCommit {
  double seconds = 0;  ///< until it was durable
  std::uint64_t state_bytes_written = 0;
  std::uint64_t record_bytes_written = 0;
};

/// What commits cost, beside two flushes of all drives one after the other that come after the same writes.
struct OffloadCommits {
  std::vector<OffloadCommit> commits;
  std::vector<double> bare_flushes_s;
  double commit_s = 0;  ///< median
  double median_flushes_s = 0;
  double beyond_of_step = 0;  ///< (commit_s - median_flushes_s) / median seconds of a whole step
};

/// What backward of the last micro-batch and the step take together at least, however they overlap:
/// limit_s = max(backward_s, fetch_s + io_limit_s) + last_layer_s.
struct OffloadOverlap {
  double backward_s = 0;  ///< the simulated arithmetic, computed from its speed
  /// Median of backward's fetches repeated in a pass of their own, after forward's, with nothing computed.
  double fetch_s = 0;
  /// Of the layer whose gradient comes last nothing can be updated during backward: its part, by elements, of the
  /// step's larger limit.
  double last_layer_s = 0;
  double limit_s = 0;
  double ratio = 0;  ///< OffloadStep::last_s / limit_s
};

struct OffloadBenchReport {
  std::vector<OffloadStep> steps;
  OffloadCommits commits;      ///< empty without commit_every
  OffloadStep median;          ///< of each figure by itself
  double io_limit_s = 0;       ///< median of the last step's requests replayed without arithmetic
  double compute_limit_s = 0;  ///< median of the same chunks updated from frames without I/O
  double efficiency = 0;       ///< max(io_limit_s, compute_limit_s) / median.step_s
  OffloadOverlap overlap;
  std::uint64_t trainer_bytes = 0;
  Stats stats;
};

/// A training loop without a model: layers of equal size are fetched and released forward, then backward with
/// a gradient that was made beforehand, then stepped. One step that is not counted comes first, so that every
/// slot was written. Each counted step alternates with the limits; with commit_every also with commits and bare
/// flushes, the drives' caches emptied before. Nothing of it stays on the drives. `on_step` is called after each
/// step, in order. Errors: kInvalidArgument naming the option, its value and the accepted range; kAborted after an
/// interrupt; the engine's.
Result<OffloadBenchReport> run_offload_bench(const OffloadBenchOptions& options,
                                             const std::function<void(const OffloadStep&)>& on_step);

}  // namespace sluice::tools
