#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/device.hpp"
#include "sluice/options.hpp"
#include "sluice/stats.hpp"
#include "sluice/status.hpp"
#include "sluice/tensor.hpp"
#include "sluice/types.hpp"

namespace sluice {

namespace engine {
class Core;
struct Access;
struct CommitState;
struct LeaseState;
}  // namespace engine

/// A group's optimizer as a commit holds it.
struct CommittedGroup {
  std::string name;
  Optimizer optimizer;
};

/// What seal() went on from.
struct Recovered {
  std::uint64_t commit = 0;  ///< its number
  std::uint64_t step = 0;    ///< finished steps of the state then
  /// What this rank gave to commit(); with another world now the bytes of old rank (rank mod old world).
  std::vector<std::byte> user_bytes;
  std::vector<CommittedGroup> groups;
  /// What the trainer registered otherwise than the store was made or committed with, in words, both values. The
  /// trainer's optimizer numbers are in use, the store's seed.
  std::vector<std::string> differences;
  bool rewritten = false;  ///< into a store of another shape (world, chunks, drives, policies …)
};

/// How seal() laid the state out.
struct SealReport {
  std::uint64_t chunks = 0;
  std::uint64_t state_bytes = 0;             ///< of all planes but the gradient, this rank's
  std::uint64_t host_bytes = 0;              ///< of the host budget, in use
  std::uint64_t least_host_bytes = 0;        ///< the smallest host budget that would do
  std::uint64_t resident_chunks = 0;         ///< whole records in host frames: no NVMe traffic
  std::uint64_t spilled_gradient_bytes = 0;  ///< room on NVMe for gradients that do not fit; 0: they fit
  std::uint64_t nvme_bytes = 0;
  std::uint64_t device_bytes = 0;
  std::uint64_t read_ahead_bytes = 0;  ///< of the device budget, beyond what leases may hold
  std::string arithmetic;              ///< the host budget in words, a line a part
  std::optional<Recovered> recovered;  ///< none: the state is new
};

/// Whether commit() returns before the commit is durable.
enum class CommitMode : std::uint8_t { kBackground, kWait };

/// A commit under way, or over. Copies speak of the same one.
/// Threads: any.
class SLUICE_API CommitTicket {
 public:
  CommitTicket();
  /// Rises from commit to commit; what EngineOptions::recover_commit asks for.
  std::uint64_t number() const;
  bool done() const;
  /// Blocks: until every rank holds the commit, or it has failed.
  /// Returns: its failure, each time.
  Status wait() const;

 private:
  friend class Engine;
  explicit CommitTicket(std::shared_ptr<engine::CommitState> state);
  std::shared_ptr<engine::CommitState> state_;
};

/// A move-only pin on fetched parameters; dropping it releases them.
/// Threads: one at a time; may be dropped on any thread and after the engine.
class SLUICE_API Lease {
 public:
  Lease();
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;
  ~Lease();

  /// The weights of the last finished step.
  /// Requires: the parameter is one of the fetched ones; otherwise the tensor is empty (null data).
  ConstTensor operator[](ParameterId parameter) const;

  /// Releases in order of `stream`; the tensors must not be used by work that comes after.
  void release(Stream stream = {});

 private:
  friend class Pass;
  explicit Lease(std::shared_ptr<engine::LeaseState> state);
  std::shared_ptr<engine::LeaseState> state_;
};

/// One repetition of a named trace. Move-only; dropped unfinished it is aborted.
/// Threads: one at a time.
class SLUICE_API Pass {
 public:
  Pass();
  Pass(Pass&&) noexcept;
  Pass& operator=(Pass&&) noexcept;
  ~Pass();

  /// A hint that these come next.
  /// Blocks: never. Never fails.
  void prefetch(std::span<const ParameterId> parameters);

  /// All or nothing: the weights of all parameters in device memory; duplicates and ties count once.
  /// Blocks: until they are there (null stream).
  /// Errors: kResourceExhausted, at once, when leases would hold more than max_fetch_bytes, naming them;
  /// kIoError, kDataLoss from the drive, naming parameter and place.
  Result<Lease> fetch(std::span<const ParameterId> parameters, Stream stream = {});

  /// Adds a contribution of the whole parameter.
  /// Blocks: while frames are freed.
  /// Lifetime: the source is reusable on return (null stream).
  /// Errors: kFailedPrecondition in a forward-only pass, for a frozen parameter, for a second contribution to
  /// a kBf16Once group; kInvalidArgument for another dtype than fp32, bf16, fp16.
  Status add_gradient(ParameterId parameter, Gradient gradient, Stream stream = {});

  /// The parameter gets no more contributions in this step: its record may be updated before step(), whatever
  /// micro_batches says.
  /// Errors: kFailedPrecondition outside a training pass and while a contribution of it is to go on (More::kYes).
  Status no_more_gradients(ParameterId parameter);

  /// The norm of all gradients so far over all ranks, unscaled (collective). Infinite when one is not finite.
  Result<double> norm();

  /// Decides, updates and makes the new weights those that later fetches see. Collective.
  /// Blocks: until the step is done. The pass is over, also after an error; after one (undo on) the state is
  /// that before the step.
  /// Errors: kFailedPrecondition when a lease on what it changes is open, naming it: nothing was done, the
  /// pass goes on.
  Result<StepResult> step();
  /// The same with restated numbers.
  Result<StepResult> step(StepOptions options);

  /// Ends a forward-only pass.
  /// Errors: kFailedPrecondition while a lease of it is open, and for a training pass.
  Status end();
  /// Drops the gradients, if any; leases stay valid until dropped.
  /// Blocks: until what is under way for the pass has ended, which never is a commit.
  Status abort();

 private:
  friend class Engine;
  Pass(std::shared_ptr<engine::Core> core, std::uint64_t id);
  std::shared_ptr<engine::Core> core_;
  std::uint64_t id_ = 0;
};

/// Parameters and optimizer state across device memory, host memory and NVMe. create -> add_* -> seal ->
/// passes -> close.
/// Threads: any, calls are ordered by arrival; a pass belongs to one thread at a time. After a sticky fault
/// (a drive gone) every call returns the first cause. In a forked child every call returns kForked.
class SLUICE_API Engine {
 public:
  /// Errors: kInvalidArgument naming the option, its value and the accepted range.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options, std::shared_ptr<Device> device,
                                                std::shared_ptr<Communicator> communicator);
  ~Engine();  ///< drains like close()

  Result<GroupId> add_group(GroupOptions options);
  Result<ParameterId> add_parameter(ParameterOptions options);
  /// Tied: the same weights, one state; gradients of both names add up.
  Result<ParameterId> add_alias(std::string name, ParameterId parameter);

  /// Lays the state out, reserves the budgets and makes the store and fills it, or goes on from the newest commit that
  /// every rank holds (EngineOptions::recover_commit: from that one). A store of another shape (world, chunks, drives,
  /// policies, optimizers, order of registration, keep_commits, undo) is rewritten beside the old one, which is removed when the
  /// new one is committed. Collective.
  /// Errors: kResourceExhausted with needed, given and the smallest option that would do; kNoSpace; what the
  /// directories are when they are not usable; kFailedPrecondition naming the pid that holds the lock; kAlreadyExists
  /// for a store that OnExisting does not allow; kInvalidArgument listing the names that store and trainer do not share
  /// and EngineOptions::recovery does not allow; kNotFound for a commit that is not held; kDataLoss for a store that is
  /// damaged, or of which a drive or a rank is missing, naming it; kUnimplemented for one of a newer version.
  Result<SealReport> seal();

  Result<Pass> begin_step(StepOptions options = {});
  /// Forward only; allowed inside a step, one at a time.
  Result<Pass> begin_pass(std::string_view phase);

  /// Elements of `range` as `dtype`, between passes: F32, BF16, F16; of 8-bit moments also U8, their codes, which with
  /// kScale1 and kScale2 are all that is kept of them. This rank's elements alone.
  /// Errors: kInvalidArgument for a range outside the parameter or a view that its policy or optimizer does not have;
  /// kFailedPrecondition for another rank's elements.
  Status read(ParameterId parameter, View view, Range range, void* target, DType dtype) const;
  /// Takes what this rank owns of `range`, ignores the rest. A failed write changes nothing. bf16 moments are rounded to
  /// nearest even. 8-bit moments are coded granule by granule (256 elements from element 0 on): every granule that the
  /// range touches is coded anew, the rest of it from the values it stood for, so write whole granules for what comes
  /// back as it was.
  /// Errors: as read; kInvalidArgument for codes and scales, for an 8-bit moment that is infinite, or a second one below 0; kFailedPrecondition with a lease open on the parameter or inside a pass.
  Status write(ParameterId parameter, View view, Range range, const void* source, DType dtype);

  /// The group's numbers, from the next step on; until step() is called, also for the one under way.
  Status update_group(GroupId group, Optimizer optimizer);

  /// Makes the state, as the last finished step left it, durable together with `user_bytes` (copied), between passes;
  /// leases may be open. State on NVMe is there already: nothing of it is written. One commit is in flight, a second
  /// waits for the first. Collective: all ranks commit in the same order.
  /// Errors: kFailedPrecondition with keep_commits 0 or inside a pass; kInvalidArgument for more than max_user_bytes.
  /// A commit that fails is reported by its ticket and, unless a wait() has told of it, once by the next begin_step,
  /// begin_pass, read, write, commit or close (with several ranks by the next commit or close, so that all of them hear
  /// it in the same call). A failure before the state's own writes are durable leaves the engine usable and the commits
  /// before whole; a later one is sticky on every rank.
  /// Blocks: with kWait until the commit is durable on every rank.
  Result<CommitTicket> commit(std::span<const std::byte> user_bytes = {},
                              CommitMode mode = CommitMode::kBackground);

  /// Blocks: never.
  Stats stats() const;

  /// Waits for what is in flight, frees everything. A store with a commit stays for the next run, any other is removed.
  /// Returns the first failure that no call has reported.
  Status close();

 private:
  friend struct engine::Access;
  explicit Engine(std::shared_ptr<engine::Core> core);
  std::shared_ptr<engine::Core> core_;
};

}  // namespace sluice
