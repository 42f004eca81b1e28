#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "sluice/communicator.hpp"
#include "sluice/optimizer.hpp"
#include "sluice/types.hpp"

namespace sluice {

struct Recovered;

/// First values of a parameter, computed in seal() on its thread.
struct Zeros {};
struct Constant {
  float value = 0;
};
/// Normally distributed, keyed by the engine's seed, the parameter's name and the element's index, so that ranks,
/// chunks and order of registration do not matter.
struct Normal {
  float mean = 0;
  float stddev = 1;
};
/// Fills `target` with the range's elements: fp32 for trained policies, the group's frozen_dtype for frozen ones.
using InitialCallback = std::function<Status(Range range, DType dtype, void* target)>;
using Initial = std::variant<Zeros, Constant, Normal, InitialCallback>;

struct GroupOptions {
  std::string name = {};
  Policy policy = Policy::kBf16Split;
  Optimizer optimizer = {};  ///< ignored by a frozen group
  GradientStorage gradient = GradientStorage::kFp32;
  std::shared_ptr<Communicator> communicator = {};  ///< null: the engine's
  DType frozen_dtype = DType::kBF16;
  /// Parameters whose gathered weights are smaller stay gathered in device memory, as with Residency::kDevice.
  std::uint64_t keep_gathered_below_bytes = 0;
};

struct ParameterOptions {
  std::string name = {};                 ///< unique in the engine, not empty
  std::vector<std::int64_t> shape = {};  ///< {} is a scalar; a dimension of 0 gives 0 elements
  GroupId group = {};
  Initial initial = Zeros{};
  Residency residency = Residency::kPlanned;
};

enum class IoBackend : std::uint8_t {
  kAuto,     ///< io_uring where it is allowed, else threads; the reason is reported
  kUring,    ///< io_uring or an error
  kThreads,  ///< pread and pwrite on a pool of threads
};

/// Whether seal() measures a drive that has no profile (of an earlier probe, or of `sluice nvme --tune`).
enum class DriveProbe : std::uint8_t {
  kWhenWorthIt,  ///< where a rank's store has 1 GiB or more on its drives; takes a few seconds a drive, once
  kAlways,
  kNever,
};

struct IoOptions {
  IoBackend backend = IoBackend::kAuto;
  /// Most pieces in flight a drive, 1..4096, and the size that transfers are cut into, 4 KiB..1 GiB. 0: from the drive's
  /// profile, 32 and 1 MiB without one; of such a depth as many as keep the drive as fast.
  std::uint32_t queue_depth = 0;
  std::uint32_t piece_bytes = 0;
  DriveProbe probe = DriveProbe::kWhenWorthIt;
};

/// Which names store and trainer may not share when seal() goes on from a commit. Strict by default.
struct RecoveryOptions {
  bool allow_missing = false;     ///< registered, not in the store: gets its first values
  bool allow_extra = false;       ///< in the store, not registered: dropped
  bool allow_mismatched = false;  ///< in both with another shape: gets its first values
};

/// The value of a budget that is limited by the machine alone.
inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

struct EngineOptions {
  std::vector<std::string> directories = {};  ///< one a drive; none: no NVMe tier
  std::uint64_t host_budget_bytes = 0;  ///< pinned host memory; 0 is refused; kUnlimited: all the state needs
  std::uint64_t device_budget_bytes = 0;  ///< gathered weights; 0 is refused; kUnlimited: all weights at once
  std::uint64_t nvme_budget_bytes = 0;    ///< 0: what the store needs
  std::uint64_t max_fetch_bytes = 0;      ///< held by leases at once; 0: half the device budget
  std::uint32_t chunk_elements = 1 << 20;  ///< a multiple of 16 Ki, at most 1 Gi
  /// Versions that stay on NVMe, 0..kKeepCommitsMax. 0: a scratch store, gone with its run; without directories it must
  /// be 0.
  std::uint32_t keep_commits = 1;
  std::uint64_t max_user_bytes = 1 << 20;  ///< of a commit, at most 1 GiB
  std::uint32_t threads = 0;               ///< of the optimizer; 0: all CPUs of the affinity mask
  Undo undo = Undo::kOn;
  std::uint64_t seed = 0;
  OnExisting existing = OnExisting::kRecover;
  std::uint64_t recover_commit = 0;  ///< the number to go on from; 0: the newest
  RecoveryOptions recovery = {};
  /// Called by seal() with what it is about to go on from, before anything of any store is changed; an error ends seal()
  /// with it and leaves every store as it was. Null: anything is accepted. Threads: that of seal().
  std::function<Status(const Recovered&)> accept = {};
  std::uint64_t first_step = 0;  ///< finished steps that the first values stand for, for state from elsewhere
  /// Where drives of the old store are that are not among `directories`; only read, and emptied of it when a new store
  /// holds its state.
  std::vector<std::string> recover_directories = {};
  IoOptions io = {};
};

inline constexpr double kNoClipping = std::numeric_limits<double>::infinity();

/// The numbers of one step, complete before its first gradient.
struct StepOptions {
  double max_norm = kNoClipping;  ///< > 0; clips by the norm over all parameters of all ranks
  double loss_scale = 1;          ///< finite, > 0; gradients are divided by it
  double gradient_divisor = 1;    ///< finite, > 0; for a mean over micro-batches
  NonFinite non_finite = NonFinite::kSkipStep;
  /// Contributions expected a name, at first: then as many as finished steps with this number have shown, a parameter's
  /// most; fewer are expected again after 16 such steps in a row that had fewer. Four numbers are remembered. A record
  /// is updated before step(), on the guess that nothing is clipped or skipped, when they are in. 0: unknown, only what
  /// no_more_gradients() closes is updated before step().
  std::uint32_t micro_batches = 1;
};

struct StepResult {
  bool skipped = false;    ///< a gradient was not finite: nothing changed
  double norm = 0;         ///< of the unscaled gradients before clipping
  std::uint64_t step = 0;  ///< steps finished by this engine, this one included unless skipped
};

}  // namespace sluice
