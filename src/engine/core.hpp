#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/commit_exchange.hpp"
#include "engine/commits.hpp"
#include "engine/drive_choice.hpp"
#include "engine/drive_loads.hpp"
#include "engine/early_updates.hpp"
#include "engine/follower.hpp"
#include "engine/gather.hpp"
#include "engine/gradients.hpp"
#include "engine/host_weights.hpp"
#include "engine/initial.hpp"
#include "engine/loop.hpp"
#include "engine/numa.hpp"
#include "engine/parts.hpp"
#include "engine/record_updates.hpp"
#include "engine/records.hpp"
#include "engine/recovery.hpp"
#include "engine/state.hpp"
#include "engine/step.hpp"
#include "memory/arena.hpp"
#include "memory/frame_pool.hpp"
#include "plan/contribution_counts.hpp"
#include "sluice/engine.hpp"
#include "store/existing.hpp"
#include "store/store.hpp"

namespace sluice::engine {

/// What a lease holds: the core, so that its memory stays, and where each tensor is.
/// Shape: by fetched tensor, ascending.
struct LeaseState {
  std::shared_ptr<Core> core;
  std::uint64_t lease = 0;
  struct View {
    std::uint32_t tensor = 0;
    ConstTensor data;
  };
  std::vector<View> views;
};

/// One commit() call.
struct CommitState {
  std::weak_ptr<Core> core;
  std::uint64_t number = 0;
  std::optional<Status> outcome;  ///< guarded by the core's mutex, and by nothing once the core is gone
};

/// One engine. The public classes are handles on it; their calls run here on the trainer's threads, and what
/// concerns residency is posted to the control loop. Collectives are made by the calling thread, in the order
/// of its calls.
class Core : public std::enable_shared_from_this<Core> {
 public:
  static Result<std::shared_ptr<Core>> create(EngineOptions options, std::shared_ptr<Device> device,
                                              std::shared_ptr<Communicator> communicator, Parts parts);
  ~Core();

  Result<GroupId> add_group(GroupOptions options);
  Result<ParameterId> add_parameter(ParameterOptions options);
  Result<ParameterId> add_alias(std::string name, ParameterId parameter);
  Result<SealReport> seal();
  Status update_group(GroupId group, const Optimizer& optimizer);
  Stats stats() const;
  Status close();

  Result<std::uint64_t> begin_step(const StepOptions& options);
  Result<std::uint64_t> begin_pass(std::string_view phase);
  void prefetch(std::uint64_t pass, std::span<const ParameterId> parameters);
  Result<std::shared_ptr<LeaseState>> fetch(std::uint64_t pass, std::span<const ParameterId> parameters,
                                            Stream stream);
  void release(std::uint64_t lease, Stream stream);
  Status add_gradient(std::uint64_t pass, ParameterId parameter, const Gradient& gradient, Stream stream);
  Status no_more_gradients(std::uint64_t pass, ParameterId parameter);
  Result<double> norm(std::uint64_t pass);
  Result<StepResult> step(std::uint64_t pass, std::optional<StepOptions> restated);
  Status end(std::uint64_t pass);
  /// Whether a call can tell its caller of a failure.
  enum class Hears : std::uint8_t { kFailures, kNothing };
  Status abort(std::uint64_t pass, Hears hears = Hears::kFailures);

  Result<std::shared_ptr<CommitState>> commit(std::span<const std::byte> user_bytes, CommitMode mode);
  Status wait(const std::shared_ptr<CommitState>& commit);
  bool done(const CommitState& commit) const;

  Status read(ParameterId parameter, View view, Range range, void* target, DType dtype);
  Status write(ParameterId parameter, View view, Range range, const void* source, DType dtype);

  Result<double> replay_step(StepMode mode, Replayed chunks);
  Result<double> flush_twice();

  /// True in a child that fork() made: nothing of the engine works there, its memory is not mapped.
  bool forked() const;
  /// The tensor of a parameter, for a lease's look-up.
  std::optional<std::uint32_t> find_tensor(ParameterId parameter) const;

 private:
  Core(EngineOptions options, std::shared_ptr<Device> device, std::shared_ptr<Communicator> communicator,
       Parts parts);

  /// What the traces of one named phase have shown.
  struct Phase {
    plan::Trace fetches, loads, gradients;
  };
  /// A pass that was begun and not ended. The loop's.
  struct ActivePass {
    ActivePass(std::uint64_t pass_id, Phase& seen, PassEnd end)
        : id(pass_id),
          phase(&seen),
          fetches(seen.fetches, end),
          loads(seen.loads, end),
          gradients(seen.gradients, end) {}

    const std::uint64_t id;
    Phase* const phase;
    Follower fetches, loads, gradients;
  };
  /// What one tensor has been given in the step under way. The loop's.
  struct Contributions {
    std::uint32_t count = 0;  // whole ones
    bool part_open = false;   // a contribution that goes on (More::kYes)
    bool closed = false;      // no_more_gradients
    bool any() const { return count > 0 || part_open; }
  };

  /// Wakes the loop from threads of the compute and the device. The last of these calls may still be under way
  /// when what it was about has been delivered and the queue goes.
  class Waker {
   public:
    explicit Waker(io::Queue& queue) : queue_(&queue) {}
    void wake() {
      std::lock_guard lock(mutex_);
      if (queue_ != nullptr) queue_->wake();
    }
    void detach() {
      std::lock_guard lock(mutex_);
      queue_ = nullptr;
    }

   private:
    std::mutex mutex_;
    io::Queue* queue_;
  };

  /// What exists between seal() and the end. Destroyed from the last member to the first, when nothing is in
  /// flight.
  struct Running {
    Running() = default;
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() {
      if (waker) waker->detach();
    }

    std::optional<NumaUse> numa;  // until everything is bound
    memory::Arena arena;
    std::optional<store::Drives> drives;
    DriveChoice drive_choice;
    std::optional<DriveLoads> loads;
    std::unique_ptr<store::Store> store;
    std::unique_ptr<io::Backend> backend;
    std::unique_ptr<Compute> compute;
    std::unique_ptr<DeviceSession> device;
    std::unique_ptr<io::Queue> queue;
    std::shared_ptr<Waker> waker;
    std::optional<memory::FramePool> record_frames, gradient_frames, weight_frames;
    std::span<std::byte> commit_buffer;  // of one commit record
    std::span<std::byte>
        exchange;  // for gradients of several ranks; used by the thread that calls add_gradient
    std::unique_ptr<Records> records;
    std::unique_ptr<Commits> commits;
    std::unique_ptr<HostWeights> weights;
    std::unique_ptr<Gather> gather;
    std::unique_ptr<Gradients> gradients;
    std::unique_ptr<RecordUpdates> updates;
    std::unique_ptr<EarlyUpdates> early;
    std::unique_ptr<Step> step;
    std::unique_ptr<Loop> loop;
    std::unique_ptr<CommitExchange> commit_exchange;  // its thread posts to the loop
  };

  // core.cpp
  enum class Need : std::uint8_t { kOpen, kNotSealed, kSealed };
  /// A call of the trainer's that is under way: close() waits for it, and none begins after close().
  class Call {
   public:
    Call(const Core& core, Need need, Hears hears = Hears::kFailures);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    bool ok() const { return status_.ok(); }
    const Status& status() const { return status_; }

   private:
    const Core& core_;
    Status status_;
  };
  Status stick(Status status);
  Loop& loop() { return *running_->loop; }
  Status drain();

  // seal.cpp
  Status lay_out(SealReport& report);
  void ask_drives();
  void measure_commit_record();
  Status reserve(SealReport& report);
  void expect_contributions();
  Status duplicate_communicator();
  Status carve_frames();
  /// Frames and files, with the backend. On the loop.
  void register_io();
  /// After the last of what is bound to NUMA nodes: what is in use is known then.
  void bind_loop();
  Status plan_device(SealReport& report);
  Status agree_on_registry();

  // fill.cpp
  Status fill_records();
  Status fill_record(std::uint32_t chunk, std::byte* record);

  // recover.cpp
  store::StoreOptions store_options() const;
  Status open_store(SealReport& report);
  Status find_stores();
  Status choose_store();
  void set_apart();
  std::vector<std::string> differences_of(const store::ExistingRank& existing) const;
  bool can_go_on_in_place() const;
  Result<bool> all_can_go_on_in_place() const;
  /// Groups as they were committed, and the seed, which is in use from here on.
  void take_settings(const std::vector<store::GroupSettings>& groups, std::uint64_t seed);
  Status go_on_in_place();
  Status open_source();
  Status check_held_apart() const;
  /// Asks the trainer, and the options, about what would be gone on from.
  Status check_recovered();
  Status remove_stores(std::vector<store::ExistingRank>& stores);
  Status make_store();
  /// A transfer before the loop turns. Blocks: until it is over.
  Status move_now(io::Transfer transfer);
  Status flush_now(std::uint32_t drive);
  Status apply_repairs();
  Status finish_recovery(SealReport& report);
  void restore_numbers();
  Status load_residents();
  Status commit_rewritten();

  // commit.cpp
  Status take_unreported();
  /// Blocks: until no commit is in flight.
  Status await_commits();
  void conclude_commit(const std::shared_ptr<CommitState>& commit, const CommitResult& result);

  // passes.cpp
  ActivePass* find_pass(std::uint64_t pass);
  Result<std::uint64_t> begin(std::string_view phase, PassEnd end, const StepOptions* options);
  void follow_innermost();
  enum class Outcome : std::uint8_t { kFinished, kAborted };
  void finish_pass(std::uint64_t pass, Outcome outcome);
  Result<std::vector<std::uint32_t>> tensors_of(std::span<const ParameterId> parameters) const;
  /// The ranks of a group tell each other what they fetch.
  /// Returns: the tensors that some rank does not hold whole, the same on every rank.
  Result<std::vector<std::uint32_t>> agree_on_fetch(const Group& group,
                                                    const std::vector<std::uint32_t>& tensors,
                                                    const Status& local);
  /// Brings the other ranks' shards of pinned tensors, when every rank has its own.
  Status gather_shards(const std::vector<std::uint32_t>& tensors, Status local);
  /// Ends a pass that is not over, then completes the ticket. On the loop.
  void drop_pass(std::uint64_t pass, Outcome outcome, Ticket& ticket);
  /// Forgets what is left of a step, if one is under way: updates that were made early, gradients. On the loop.
  void drop_step(Done done);

  // contributions.cpp
  struct PartOfGradient {
    std::uint32_t tensor = 0;
    Range range;  // of the whole tensor, this rank's
    const void* source = nullptr;
    DType dtype = DType::kF32;
    kernels::Accumulate accumulate = kernels::Accumulate::kStore;
  };
  using Opened = std::function<void(const Result<kernels::Accumulate>& accumulate)>;
  /// Tells how a contribution is to be added, when it may be. On the loop.
  void open_contribution(std::uint64_t pass, std::uint32_t tensor, More more, const Opened& opened);
  /// The source stays until `done`. On the loop.
  void add_part(const PartOfGradient& part, Done done);
  /// A contribution, or with More::kYes a part of one, has been added. On the loop.
  void close_contribution(std::uint32_t tensor, More more);
  Status add_alone(std::uint64_t pass, std::uint32_t tensor, const Gradient& gradient);
  Status add_with_other_ranks(std::uint64_t pass, std::uint32_t tensor, const Gradient& gradient);
  Status add_from_all_ranks(std::uint32_t tensor, const Gradient& gradient, kernels::Accumulate accumulate);

  // finish_step.cpp
  /// What the ranks have agreed to do with the gradients.
  struct Decision {
    double norm = 0;  // unscaled, before clipping
    bool skip = false;
    double gradient_factor = 1;  // clipping and unscaling in one
  };
  static Decision decide(const kernels::NormDelta& total, const StepOptions& options);
  /// What gradients are multiplied by when nothing is clipped.
  static double unscaling(const StepOptions& options);
  Status check_step(std::uint64_t pass) const;
  Result<kernels::NormDelta> sum_norms(const StepOptions& options);
  Status update_state(const Decision& decision);
  StepFactors make_step_factors(double gradient_factor) const;
  void conclude_step(const StepFactors& factors);
  void count_overflowed();

  /// Consecutive elements of one tensor in one chunk.
  struct Region {
    std::uint32_t chunk = 0;
    std::uint32_t offset = 0;  // element of the chunk
    std::uint32_t count = 0;
    std::uint32_t parameter_end = 0;  // of the chunk's elements, the first behind the tensor's
    std::uint64_t position = 0;       // element of the caller's buffer
  };
  /// Where this rank's part of a range lies, ascending in element.
  std::vector<Region> regions_of(std::uint32_t tensor, Range range) const;

  // state_access.cpp
  Status check_access(std::uint32_t tensor, View view, Range range, DType dtype) const;
  Status between_passes();
  Result<std::byte*> take_frame(std::uint32_t chunk);
  void give_back_frame(std::uint32_t chunk, std::byte* frame);
  Status load(std::uint32_t chunk, PlaneRange planes, std::byte* frame);
  /// The error for planes in `frame` that are not what was written; the frame is used to look for a copy.
  Status damaged(std::uint32_t chunk, PlaneRange planes, std::byte* frame);
  /// Where a changed record of a chunk may be written: its own slot where that is allowed, or another.
  Result<io::Place> find_target(std::uint32_t chunk);
  Status with_record(std::uint32_t chunk, PlaneRange planes,
                     const std::function<Status(std::byte* record)>& use);
  Status write_regions(std::uint32_t tensor, const std::vector<Region>& regions,
                       const std::function<void(const Region&, std::byte* record)>& change);

  const EngineOptions options_;
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Communicator> communicator_;
  const Parts parts_;
  const pid_t owner_;

  std::mutex access_mutex_;   // one read() or write() at a time, and no pass begins in its middle
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable calls_ended_;
  std::condition_variable commits_concluded_;
  mutable std::uint32_t calls_ = 0;
  Status sticky_;
  bool closed_ = false;
  bool sealed_ = false;
  mutable std::shared_ptr<CommitState> unreported_;  // a failed commit that no call has told of

  State state_;
  std::unique_ptr<Running> running_;
  Stats fixed_stats_;  // what seal() found out; constant afterwards
  GatherOptions gather_options_;
  std::uint64_t device_bytes_ = 0;
  std::uint32_t grid_bytes_ = 4096;
  std::uint64_t commit_record_bytes_ = 0;  // the most that one takes
  std::uint64_t store_id_ = 0;
  std::vector<std::uint32_t> stored_chunks_;  // that have slots
  std::vector<store::StoredParameter> stored_parameters_;
  FirstValues first_values_;
  std::unique_ptr<Recovery> recovery_;  // during seal()

  // The loop's.
  std::map<std::string, Phase, std::less<>> phases_;
  std::optional<ActivePass> training_, inner_;
  bool ending_ = false;  // step() or abort() of the training pass is under way: no other one may begin
  StepOptions step_options_;
  std::optional<plan::ContributionCounts> contribution_counts_;  // from seal() on
  std::vector<Contributions> contributions_;                     // by tensor
  std::uint64_t next_pass_ = 1;
};

/// Errors: kInvalidArgument naming the number, its value and the accepted range.
Status check(const StepOptions& options);

/// Elements of a shard that ranks exchange at once: a bound on the memory that a reduction takes.
inline constexpr std::uint64_t kExchangeElements = 64 << 10;

/// Ranks exchange how each fared.
/// Returns: ok on every rank, or on every rank a failure: its own where it failed.
Status agree(Communicator& communicator, Status local);

}  // namespace sluice::engine
