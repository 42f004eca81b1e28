#include "engine/core.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "kernels/isa.hpp"

namespace sluice::engine {
namespace {

constexpr std::uint32_t kMinChunkElements = 16 << 10;
constexpr std::uint32_t kMaxChunkElements = 1 << 30;
constexpr std::uint64_t kMaxUserBytes = 1 << 30;
/// More than any machine has; a larger number is a mistake in the options.
constexpr std::uint32_t kMaxThreads = 4096;

Status refuse(std::string_view option, std::string_view value, std::string_view accepted) {
  return Status(Code::kInvalidArgument, fmt::format("{} = {}, accepted: {}", option, value, accepted));
}

Status check(const EngineOptions& options) {
  if (options.host_budget_bytes == 0) return refuse("host_budget_bytes", "0", "> 0, or kUnlimited");
  if (options.device_budget_bytes == 0) return refuse("device_budget_bytes", "0", "> 0, or kUnlimited");
  if (options.chunk_elements < kMinChunkElements || options.chunk_elements > kMaxChunkElements ||
      options.chunk_elements % kMinChunkElements != 0)
    return refuse("chunk_elements", std::to_string(options.chunk_elements),
                  "a multiple of 16 Ki, up to 1 Gi");
  if (options.directories.empty() && options.keep_commits != 0)
    return refuse("keep_commits", std::to_string(options.keep_commits),
                  "0 without directories: there is nowhere to keep a commit");
  if (options.keep_commits > kKeepCommitsMax)
    return refuse("keep_commits", std::to_string(options.keep_commits),
                  fmt::format("0..{}", kKeepCommitsMax));
  if (options.max_user_bytes > kMaxUserBytes)
    return refuse("max_user_bytes", std::to_string(options.max_user_bytes), "up to 1 GiB");
  if (options.recover_commit != 0 && (options.keep_commits == 0 || options.existing != OnExisting::kRecover))
    return refuse("recover_commit", std::to_string(options.recover_commit),
                  "0 unless keep_commits > 0 and existing = kRecover");
  if (options.threads > kMaxThreads) return refuse("threads", std::to_string(options.threads), "0..4096");
  if (options.io.queue_depth > 4096)
    return refuse("io.queue_depth", std::to_string(options.io.queue_depth), "1..4096, or 0: by the drive");
  if (options.io.piece_bytes != 0 && (options.io.piece_bytes < 4096 || options.io.piece_bytes > 1U << 30))
    return refuse("io.piece_bytes", std::to_string(options.io.piece_bytes),
                  "4 KiB..1 GiB, or 0: by the drive");
  return {};
}

}  // namespace

Status agree(Communicator& communicator, Status local) {
  const std::uint32_t world = communicator.world();
  if (world == 1) return local;
  std::vector<std::byte> codes(world);
  codes[communicator.rank()] = static_cast<std::byte>(local.code());
  const GatheredShards shards{codes.data(), 1};
  SLUICE_RETURN_IF_ERROR(communicator.all_gather({&shards, 1}));
  if (!local.ok()) return local;
  for (std::uint32_t rank = 0; rank < world; ++rank)
    if (const auto code = static_cast<Code>(codes[rank]); code != Code::kOk)
      return Status(Code::kAborted, fmt::format("rank {} failed with {}", rank, code_name(code)));
  return {};
}

Core::Core(EngineOptions options, std::shared_ptr<Device> device, std::shared_ptr<Communicator> communicator,
           Parts parts)
    : options_(std::move(options)),
      device_(std::move(device)),
      communicator_(std::move(communicator)),
      parts_(std::move(parts)),
      owner_(getpid()) {}

Result<std::shared_ptr<Core>> Core::create(EngineOptions options, std::shared_ptr<Device> device,
                                           std::shared_ptr<Communicator> communicator, Parts parts) {
  SLUICE_RETURN_IF_ERROR(check(options));
  if (!device) return refuse("device", "null", "a device");
  if (!communicator) return refuse("communicator", "null", "a communicator");
  // In a forked child nothing may be torn down: the loop's thread is not there, the arenas are not mapped.
  return std::shared_ptr<Core>(
      new Core(std::move(options), std::move(device), std::move(communicator), std::move(parts)),
      [](Core* core) {
        if (!core->forked()) delete core;
      });
}

Core::~Core() {
  // The destructor has nobody to tell; close() has.
  (void)close();
}

bool Core::forked() const { return getpid() != owner_; }

Core::Call::Call(const Core& core, Need need, Hears hears) : core_(core) {
  if (core.forked()) {
    status_ = Status(Code::kForked, "this engine belongs to the parent process");
    return;
  }
  std::lock_guard lock(core.mutex_);
  if (core.closed_)
    status_ = Status(Code::kFailedPrecondition, "the engine is closed");
  else if (!core.sticky_.ok()) {
    status_ = core.sticky_;
    // A commit that broke the engine is told of with it.
    if (hears == Hears::kFailures) core.unreported_.reset();
  } else if (need == Need::kSealed && !core.sealed_)
    status_ = Status(Code::kFailedPrecondition, "the engine is not sealed yet");
  else if (need == Need::kNotSealed && core.sealed_)
    status_ = Status(Code::kFailedPrecondition, "the engine is sealed already");
  else
    ++core.calls_;
}

Core::Call::~Call() {
  if (!status_.ok()) return;
  std::lock_guard lock(core_.mutex_);
  if (--core_.calls_ == 0) core_.calls_ended_.notify_all();
}

Status Core::stick(Status status) {
  {
    std::lock_guard lock(mutex_);
    if (sticky_.ok()) sticky_ = status;
  }
  // This rank makes no commit any more: peers that are in one, or begin one, must not wait for it.
  if (running_->commit_exchange) running_->commit_exchange->abort(status);
  return status;
}

Result<GroupId> Core::add_group(GroupOptions options) {
  const Call call(*this, Need::kNotSealed);
  if (!call.ok()) return call.status();
  return state_.registry.add_group(std::move(options), communicator_);
}

Result<ParameterId> Core::add_parameter(ParameterOptions options) {
  const Call call(*this, Need::kNotSealed);
  if (!call.ok()) return call.status();
  return state_.registry.add_parameter(std::move(options));
}

Result<ParameterId> Core::add_alias(std::string name, ParameterId parameter) {
  const Call call(*this, Need::kNotSealed);
  if (!call.ok()) return call.status();
  return state_.registry.add_alias(std::move(name), parameter);
}

Status Core::update_group(GroupId group, const Optimizer& optimizer) {
  const Call call(*this, Need::kOpen);
  if (!call.ok()) return call.status();
  const bool sealed = [this] {
    std::lock_guard lock(mutex_);
    return sealed_;
  }();
  if (!sealed) return state_.registry.update_group(group, optimizer);
  return loop().call([&](Ticket& ticket) {
    Status status = state_.registry.update_group(group, optimizer);
    if (status.ok() && training_) running_->early->renumbered(group.index);
    loop().complete(ticket, std::move(status));
  });
}

std::optional<std::uint32_t> Core::find_tensor(ParameterId parameter) const {
  const Result<std::uint32_t> tensor = state_.registry.tensor_of(parameter);
  return tensor.ok() ? std::optional(*tensor) : std::nullopt;
}

Stats Core::stats() const {
  if (forked()) return {};
  {
    std::lock_guard lock(mutex_);
    if (!sealed_) return {};  // seal() is writing what is fixed after it
  }
  Stats stats = fixed_stats_;
  const Counters& counters = state_.counters;
  const auto seconds = [](const Counters::Counter& ns) { return static_cast<double>(ns.load()) * 1e-9; };
  stats.steps = counters.steps;
  stats.skipped_steps = counters.skipped_steps;
  stats.early_updates = counters.early_updates;
  stats.redone_updates = counters.redone_updates;
  stats.wrong_guesses = counters.wrong_guesses;
  stats.nvme_reserved_bytes = counters.nvme_reserved_bytes;
  stats.commits = counters.commits;
  stats.failed_commits = counters.failed_commits;
  stats.steps_since_commit = counters.steps_since_commit;
  stats.fetches = counters.fetches;
  stats.demand_fetches = counters.demand_fetches;
  stats.weights_overflowed = counters.weights_overflowed;
  stats.weight_bytes_read = counters.weight_bytes_read;
  stats.record_bytes_read = counters.record_bytes_read;
  stats.record_bytes_written = counters.record_bytes_written;
  stats.commit_state_bytes_written = counters.commit_state_bytes_written;
  stats.commit_record_bytes_written = counters.commit_record_bytes_written;
  stats.gradient_bytes_read = counters.gradient_bytes_read;
  stats.gradient_bytes_written = counters.gradient_bytes_written;
  stats.device_bytes_in = counters.device_bytes_in;
  stats.io_retries = counters.io_retries;
  stats.fetch_wait_seconds = seconds(counters.fetch_wait_ns);
  stats.gradient_wait_seconds = seconds(counters.gradient_wait_ns);
  stats.step_seconds = seconds(counters.step_ns);
  stats.commit_wait_seconds = seconds(counters.commit_wait_ns);
  stats.commit_seconds = seconds(counters.commit_ns);
  return stats;
}

Status Core::drain() {
  return loop().call([&](Ticket& ticket) {
    running_->gather->pause([this, &ticket](Status) {
      drop_step([this, &ticket](Status) {
        running_->commits->after([this, &ticket] { loop().complete(ticket, {}); });
      });
    });
  });
}

Status Core::close() {
  if (forked()) return Status(Code::kForked, "this engine belongs to the parent process");
  {
    std::unique_lock lock(mutex_);
    if (closed_) return {};
    closed_ = true;
    calls_ended_.wait(lock, [&] { return calls_ == 0; });
  }
  if (!running_) return {};
  Status status;
  if (running_->loop) status = drain();
  running_->commit_exchange.reset();
  running_->loop.reset();
  {
    std::lock_guard lock(mutex_);
    if (const auto failed = std::exchange(unreported_, nullptr); failed && status.ok())
      status = *failed->outcome;
  }
  if (running_->store)
    if (Status closing = running_->store->close(); status.ok()) status = closing;
  // Frames and device memory stay until the last lease is dropped; files and threads are gone.
  if (running_->waker) running_->waker->detach();
  running_->queue.reset();
  running_->backend.reset();
  running_->compute.reset();
  return status;
}

}  // namespace sluice::engine
