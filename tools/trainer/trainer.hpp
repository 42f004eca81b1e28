#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/engine.hpp"
#include "trainer/fingerprint.hpp"
#include "trainer/schedule.hpp"
#include "trainer/shape.hpp"

namespace sluice::trainer {

enum class Start : std::uint8_t {
  kFresh,   ///< at the beginning; a store with commits is refused
  kResume,  ///< from a commit, or at the beginning where there is none
};

struct TrainOptions {
  std::string text_path;
  std::vector<std::string> directories;              ///< one a drive; none: all state in host memory
  std::optional<std::uint64_t> host_memory_bytes;    ///< null: the smallest that seal() accepts
  std::optional<std::uint64_t> device_memory_bytes;  ///< null: room for four of the largest parts
  Shape shape;
  std::uint64_t steps = 500;
  std::uint64_t seed = 1;
  std::size_t sequences = 4;  ///< a micro-batch
  std::uint32_t micro_batches = 2;
  /// Of the matrices; gains and embedding have no weight decay. Its learning rate is the peak.
  Optimizer optimizer =
      AdamW{.lr = 3e-3, .beta2 = 0.95, .weight_decay = 0.1};  // short runs want a short memory
  std::uint64_t warmup_steps = 40;
  Decline decline = Decline::kCosine;
  double min_lr = 0.1;                   ///< where the decline ends, of the peak
  double max_norm = 1;                   ///< of all gradients together; kNoClipping: any
  std::optional<double> loss_scale = 1;  ///< fixed; null: dynamic
  bool overlap = true;                   ///< records are updated while backward goes on
  std::uint32_t threads = 0;             ///< of the optimizer; 0: all CPUs
  std::uint32_t gemm_threads = 0;        ///< of the model; 0: all CPUs
  std::uint32_t chunk_elements = 128 << 10;
  IoBackend backend = IoBackend::kAuto;
  Policy policy = Policy::kBf16Split;
  Undo undo = Undo::kOn;
  /// Steps between two commits, another comes after the last step; 0: a scratch store, nothing is kept.
  std::uint64_t commit_every = 0;
  std::uint32_t keep_commits = 1;  ///< with commit_every
  Start start = Start::kFresh;
  std::uint64_t resume_from = 0;                 ///< a commit's number; 0: the newest
  std::vector<std::string> recover_directories;  ///< of drives that are not among `directories` any more
  std::size_t sample_bytes = 200;                ///< of text to generate at the end
  std::size_t validate_bytes = 64 << 10;         ///< of held-out text to measure at the end, at most; 0: none
};

/// With commits: their user bytes hold the loss of each step.
inline constexpr std::uint64_t kCommittedStepsMax = 1 << 20;

/// Whether gradients, which are fp32, can be multiplied by it.
constexpr bool is_loss_scale(double scale) { return scale >= FLT_MIN && scale <= FLT_MAX; }
inline constexpr std::string_view kLossScales = "1.17549435e-38 to 3.40282346e+38, what fp32 holds";

/// Where training starts.
struct StartReport {
  std::optional<std::uint64_t> commit;  ///< number of the one that it goes on from; none: at the beginning
  std::uint64_t steps_done = 0;
  std::vector<std::string> differences;  ///< between the store and what was asked for, but the scheduled rate
  bool rewritten = false;                ///< the store, into another shape
};

struct StepReport {
  std::uint64_t step = 0;  ///< counted from 1
  double loss = 0;         ///< in nats a byte, over the step's micro-batches, before its update
  bool skipped = false;    ///< a gradient was not finite: nothing changed
  double seconds = 0;      ///< of the whole step
  Stats stats;             ///< after it
};

struct TrainReport {
  StartReport start;
  std::vector<double> losses;        ///< a step, those before a resume as well
  std::vector<double> step_seconds;  ///< a step of this run
  std::uint64_t bytes_per_step = 0;  ///< of text
  double loss_scale = 1;             ///< after the last step
  double validation_loss = 0;        ///< in nats a byte
  double unigram_entropy = 0;        ///< of the bytes that validation_loss is about
  std::size_t validated_bytes = 0;
  std::string prompt;  ///< the start of the held-out text
  std::string sample;  ///< what the model goes on with
  Fingerprint fingerprint;
  std::optional<std::uint64_t> commit;           ///< number of the newest that holds the end of the run
  std::optional<std::uint64_t> user_bytes_xxh3;  ///< of what that commit holds beside the state
  SealReport layout;
  Stats stats;  ///< of the training steps alone, not of what came after
  std::uint64_t host_memory_bytes = 0;
  std::uint64_t device_memory_bytes = 0;
  std::uint64_t trainer_bytes = 0;  ///< the trainer's own memory: buffers, text
  std::uint32_t gemm_threads = 0;
};

/// What hears of a run on its way.
struct TrainEvents {
  std::function<void(const StartReport&)> on_start = {};
  /// An error from it ends the work there.
  std::function<Status(const StepReport&)> after_step = {};
};

/// Learns a text byte by byte, then measures and samples what was learnt. Resumed after its last step it learns
/// nothing and reports the same. Where it ends before the last step, with commits all steps done are durable first,
/// unless the engine has failed for good.
/// Errors: what after_step or the engine says; kInvalidArgument for options outside their range and for a resume with
/// other settings than those committed, naming them: the store stays as it was, with every commit.
Result<TrainReport> train(const TrainOptions& options, const TrainEvents& events);

}  // namespace sluice::trainer
