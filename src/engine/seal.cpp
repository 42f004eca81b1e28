#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "engine/core.hpp"
#include "kernels/isa.hpp"
#include "kernels/tile_hash.hpp"
#include "memory/topology.hpp"

namespace sluice::engine {
namespace {

constexpr std::uint32_t kPage = 4096;

/// Until it is seen; all of them are alike then.
constexpr double kRateOfUnknownDrives = 1e9;
constexpr std::uint64_t kMostDepth = 4096;
constexpr std::uint64_t kMostIoThreads = 256;

/// One that each drive's depth fits in its equal share of.
io::BackendOptions backend_for(std::span<const io::DriveSettings> drives, IoBackend backend) {
  std::uint64_t depth = io::Queue::kOwnRequests;
  for (const io::DriveSettings& drive : drives) depth += drive.depth;
  // A thread for each request: one that waits for a slow drive takes none from the others.
  return {.kind = backend_kind(backend),
          .queue_depth = static_cast<std::uint32_t>(std::min(depth, kMostDepth)),
          .threads = static_cast<std::uint32_t>(std::min(depth, kMostIoThreads))};
}

std::string crash_cost(const EngineOptions& options) {
  if (options.keep_commits == 0)
    return options.directories.empty() ? "everything since seal(): all state is in memory"
                                       : "everything since seal(): the store is scratch";
  return options.undo == Undo::kOn ? "the steps since the last commit"
                                   : "the steps since the last commit; a failed step ends the engine, which "
                                     "then recovers that commit";
}

}  // namespace

Result<SealReport> Core::seal() {
  const Call call(*this, Need::kNotSealed);
  if (!call.ok()) return call.status();
  if (running_) return Status(Code::kFailedPrecondition, "seal() has failed before; make a new engine");
  running_ = std::make_unique<Running>();

  SealReport report;
  Status status = agree(*communicator_, lay_out(report));
  if (status.ok()) status = agree_on_registry();
  if (status.ok()) ask_drives();
  if (status.ok()) status = open_store(report);
  if (status.ok()) status = duplicate_communicator();
  if (status.ok()) status = agree(*communicator_, reserve(report));
  const bool in_place = recovery_ && recovery_->choice && !recovery_->reader;
  if (status.ok()) status = agree(*communicator_, in_place ? apply_repairs() : fill_records());
  if (status.ok()) {
    expect_contributions();
    running_->queue->drain();  // of its own requests too: the loop's thread adopts a backend that holds none
    running_->loop = std::make_unique<Loop>(
        parts_.loop, LoopSources{running_->queue.get(), running_->compute.get(), running_->device.get()});
    status = running_->loop->start([this] { register_io(); });
    if (status.ok()) bind_loop();
    if (status.ok()) status = running_->commit_exchange->start();
    status = agree(*communicator_, std::move(status));
  }
  if (status.ok()) status = finish_recovery(report);
  recovery_.reset();
  if (!status.ok()) {
    // Nothing of it stays: a new store's files and lock, the arenas, the threads.
    running_->commit_exchange.reset();
    running_->loop.reset();
    if (running_->queue) running_->queue->drain();
    if (running_->store) (void)running_->store->close();
    running_ = std::make_unique<Running>();
    return status;
  }
  std::lock_guard lock(mutex_);
  sealed_ = true;
  return report;
}

Status Core::lay_out(SealReport& report) {
  if (!options_.directories.empty()) {
    SLUICE_ASSIGN_OR_RETURN(running_->drives,
                            store::Drives::open(options_.directories, io::Access::kReadWrite));
    SLUICE_ASSIGN_OR_RETURN(grid_bytes_, running_->drives->grid());
  }
  const std::vector<store::ParameterSpec> specs = state_.registry.specs();
  Result<store::ElementLayout> layout = store::ElementLayout::build(
      specs, {.chunk_elements = options_.chunk_elements, .grid_bytes = grid_bytes_});
  if (!layout.ok()) return layout.status();
  state_.layout = std::move(layout).value();

  const std::size_t chunks = state_.layout.chunks().size();
  state_.chunks.resize(chunks);
  std::vector<plan::ChunkSizes> sizes(chunks);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const store::ChunkLayout& of_chunk = state_.chunk_layout(chunk);
    sizes[chunk] = {.record_bytes = of_chunk.record.bytes,
                    .gradient_bytes = of_chunk.gradient_bytes,
                    .weight_bytes = round_up(state_.plane_bytes(chunk, 0), grid_bytes_)};
    for (std::size_t plane = 0; plane < state_.class_of(chunk).planes.size(); ++plane)
      report.state_bytes += state_.plane_bytes(chunk, plane);
  }
  std::uint32_t world = 1;
  for (const Group& group : state_.registry.groups()) world = std::max(world, group.world);
  // What each rank sends of one block, and their sum.
  const std::uint64_t exchange_bytes = world == 1 ? 0 : (world + 1) * kExchangeElements * sizeof(float);
  measure_commit_record();
  Result<plan::HostPartition> partition = plan::partition_host(
      {.chunks = sizes,
       .budget_bytes = options_.host_budget_bytes,
       .reserved_bytes = exchange_bytes + commit_record_bytes_,
       .nvme = options_.directories.empty() ? plan::NvmeTier::kAbsent : plan::NvmeTier::kPresent});
  if (!partition.ok()) return partition.status();
  state_.partition = std::move(partition).value();

  std::uint32_t spill_slot = 0;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk)
    if (state_.stepped(chunk)) state_.chunks[chunk].spill_slot = spill_slot++;
  report.chunks = chunks;
  report.host_bytes = state_.partition.total_bytes;
  report.least_host_bytes = state_.partition.least_bytes;
  report.resident_chunks = static_cast<std::uint64_t>(std::ranges::count(state_.partition.resident, true));
  report.spilled_gradient_bytes = state_.partition.spilled_gradients * state_.partition.gradient_frame_bytes;
  report.arithmetic = state_.partition.arithmetic;
  return plan_device(report);
}

void Core::ask_drives() {
  std::uint64_t store_bytes = 0;
  for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk) {
    if (options_.keep_commits == 0 && state_.partition.resident[chunk]) continue;
    stored_chunks_.push_back(chunk);
    const std::uint32_t slots = options_.keep_commits + (options_.undo == Undo::kOn ? 2 : 1);
    store_bytes += state_.chunk_layout(chunk).record.bytes * (state_.stepped(chunk) ? slots : 1);
  }
  if (!running_->drives) return;
  running_->drive_choice =
      choose_drives(running_->drives->directories(), {.io = options_.io,
                                                      .store_bytes = store_bytes,
                                                      .nvme_budget_bytes = options_.nvme_budget_bytes,
                                                      .probe_memory_bytes = options_.host_budget_bytes,
                                                      .probe = parts_.probe_drive});
}

void Core::measure_commit_record() {
  if (options_.keep_commits == 0) return;
  stored_parameters_ = state_.registry.stored_parameters();
  store::RecordSize size{.chunks = state_.chunks.size(),
                         .parameters = stored_parameters_.size(),
                         .groups = state_.registry.groups().size(),
                         .user_bytes = options_.max_user_bytes};
  for (const Group& group : state_.registry.groups()) size.group_name_bytes += group.options.name.size();
  commit_record_bytes_ = round_up(store::commit_record_bytes(size), std::max(grid_bytes_, kPage));
}

Status Core::plan_device(SealReport& report) {
  std::uint64_t kept = 0, all = 0, largest = 0;
  std::string largest_name;
  for (std::uint32_t tensor = 0; tensor < state_.registry.tensors().size(); ++tensor) {
    const std::uint64_t bytes = Gather::range_bytes(state_, tensor);
    if (state_.registry.tensors()[tensor].kept) {
      kept += bytes;
      continue;
    }
    all += bytes;
    if (bytes > largest) {
      largest = bytes;
      largest_name = state_.registry.tensors()[tensor].name;
    }
  }
  const std::uint64_t budget = options_.device_budget_bytes;
  const bool half = options_.max_fetch_bytes == 0;
  std::uint64_t max_fetch = options_.max_fetch_bytes;
  if (half) max_fetch = budget == kUnlimited ? all : budget / 2;
  max_fetch = std::min(max_fetch, all);
  if (!half && largest > max_fetch)
    return Status(Code::kResourceExhausted,
                  fmt::format("parameter '{}' needs {} device bytes, max_fetch_bytes {} given; smallest "
                              "max_fetch_bytes that would do: {}, beside device_budget_bytes {} or more",
                              largest_name, largest, max_fetch, largest, kept + largest));
  if (kept + max_fetch > budget || largest > max_fetch) {
    // Half of it holds the largest, and the other half, or what is left of it beside all others, the kept.
    const std::uint64_t halves = std::min(2 * kept - (kept > 0 ? 1 : 0), kept + all);
    const std::uint64_t smallest = half ? std::max(2 * largest, halves) : kept + max_fetch;
    return Status(
        Code::kResourceExhausted,
        fmt::format("device memory: kept parameters {} + max_fetch_bytes {}{} = {} needed, "
                    "device_budget_bytes {} given, the largest fetch, of '{}', is {}; "
                    "smallest device_budget_bytes that would do: {}{}",
                    kept, max_fetch, half ? " (half the budget)" : "", kept + max_fetch, budget, largest_name,
                    largest, smallest,
                    half ? fmt::format(", or {} with max_fetch_bytes {}", kept + largest, largest) : ""));
  }
  // Beyond room for everything there is nothing to reserve. Ranges are on 256 bytes, the arena on pages.
  device_bytes_ = std::min(budget, round_up(kept + all, kPage));
  gather_options_ = {
      .max_fetch_bytes = max_fetch,
      .read_ahead_bytes = device_bytes_ >= kept + all ? all : device_bytes_ - kept - max_fetch};
  report.device_bytes = device_bytes_;
  report.read_ahead_bytes = gather_options_.read_ahead_bytes;
  return {};
}

Status Core::agree_on_registry() {
  if (communicator_->world() == 1) return {};
  kernels::Hasher hasher;
  const auto add = [&](const void* data, std::size_t bytes) { hasher.update(data, bytes); };
  const std::vector<store::ParameterSpec> specs = state_.registry.specs();
  for (std::uint32_t tensor = 0; tensor < specs.size(); ++tensor) {
    const store::ParameterSpec& spec = specs[tensor];
    add(spec.name.data(), spec.name.size() + 1);
    const std::array<std::uint64_t, 6> numbers{spec.elements,
                                               spec.group,
                                               static_cast<std::uint64_t>(spec.policy),
                                               static_cast<std::uint64_t>(spec.gradient),
                                               static_cast<std::uint64_t>(spec.frozen_dtype),
                                               state_.registry.tensors()[tensor].kept};
    add(numbers.data(), sizeof numbers);
    const std::size_t rule = spec.optimizer.index();
    add(&rule, sizeof rule);
    for (const OptimizerNumber& number : kind_of(spec.optimizer).numbers) {
      const double value = number.get(spec.optimizer);
      add(&value, sizeof value);
    }
  }
  for (std::uint32_t parameter = 0; parameter < state_.registry.parameters(); ++parameter) {
    const std::uint32_t tensor = *state_.registry.tensor_of({parameter});
    add(&tensor, sizeof tensor);
  }
  const std::array<std::uint64_t, 8> options{
      options_.seed,           gather_options_.max_fetch_bytes, static_cast<std::uint64_t>(options_.undo),
      options_.keep_commits,   options_.max_user_bytes,         static_cast<std::uint64_t>(options_.existing),
      options_.recover_commit, options_.directories.empty()};
  add(options.data(), sizeof options);
  std::vector<std::uint64_t> digests(communicator_->world());
  const std::uint64_t own = digests[communicator_->rank()] = hasher.digest();
  const GatheredShards shards{reinterpret_cast<std::byte*>(digests.data()), sizeof(std::uint64_t)};
  SLUICE_RETURN_IF_ERROR(communicator_->all_gather({&shards, 1}));
  for (std::uint32_t rank = 0; rank < digests.size(); ++rank)
    if (digests[rank] != own)
      return Status(
          Code::kInvalidArgument,
          fmt::format("rank {} registered other parameters, seed, undo, max_fetch_bytes, keep_commits, "
                      "max_user_bytes, existing, recover_commit or no directories than rank {}",
                      rank, communicator_->rank()));
  return {};
}

void Core::expect_contributions() {
  using Counts = plan::ContributionCounts;
  std::vector<Counts::Item> items(state_.registry.tensors().size());
  for (std::uint32_t tensor = 0; tensor < items.size(); ++tensor) {
    const bool once = state_.registry.group_of(tensor).options.gradient == GradientStorage::kBf16Once;
    items[tensor] = {.names = 0, .often = once ? Counts::Often::kOnceAStep : Counts::Often::kEachMicroBatch};
  }
  for (std::uint32_t parameter = 0; parameter < state_.registry.parameters(); ++parameter)
    ++items[*state_.registry.tensor_of({parameter})].names;
  contribution_counts_.emplace(std::move(items));
  contributions_.resize(state_.registry.tensors().size());
}

Status Core::duplicate_communicator() {
  std::shared_ptr<Communicator> communicator = communicator_;
  if (options_.keep_commits > 0 && communicator_->world() > 1) {
    SLUICE_ASSIGN_OR_RETURN(communicator, communicator_->duplicate());
  }
  running_->commit_exchange = std::make_unique<CommitExchange>(
      std::move(communicator), [this](std::function<void()> work) { loop().post(std::move(work)); });
  return {};
}

Status Core::reserve(SealReport& report) {
  Result<memory::Topology> read = memory::read_topology();
  if (!read.ok()) return read.status();
  NumaUse& numa = running_->numa.emplace(place_near(std::move(read).value(), running_->drives));
  const memory::Topology& topology = numa.topology;
  // oneTBB knows the mask of the thread that used it first in this process, which may have been a wider one.
  const std::uint32_t threads =
      options_.threads == 0 ? topology.threads()
                            : std::min(options_.threads, static_cast<std::uint32_t>(topology.cpus.size()));

  // Without drives the backend is only what the loop sleeps in.
  io::BackendOptions backend_options{.kind = io::BackendKind::kThreads, .queue_depth = 1, .threads = 1};
  io::QueueOptions queue_options;
  if (state_.store) {
    std::vector<std::string> directories;
    for (std::uint32_t drive = 0; drive < state_.store->drive_count(); ++drive)
      directories.push_back(state_.store->directory(drive).path());
    running_->drive_choice = in_order_of(directories, running_->drive_choice);
    queue_options.drives = running_->drive_choice.settings;
    if (options_.io.queue_depth == 0) queue_options.depth_use = io::DepthUse::kAdapted;
    backend_options = backend_for(queue_options.drives, options_.io.backend);
  }
  Result<io::SelectedBackend> backend = open_near(parts_.open_backend, backend_options, numa);
  if (!backend.ok()) return backend.status();
  running_->backend = std::move(backend->backend);
  running_->queue = std::make_unique<io::Queue>(*running_->backend, queue_options);
  state_.queue = running_->queue.get();
  if (state_.store) {
    std::vector<double> rates = running_->drive_choice.weights;
    rates.resize(state_.store->drive_count(), kRateOfUnknownDrives);
    state_.loads = &running_->loads.emplace(std::move(rates), parts_.now_ns);
  }

  running_->waker = std::make_shared<Waker>(*running_->queue);
  const auto wake = [waker = running_->waker] { waker->wake(); };
  Result<std::unique_ptr<Compute>> compute = parts_.open_compute(threads, wake);
  if (!compute.ok()) return compute.status();
  running_->compute = std::move(compute).value();
  state_.compute = running_->compute.get();

  Result<memory::Arena> arena = memory::Arena::create({.bytes = state_.partition.total_bytes,
                                                       .purpose = "host frames",
                                                       .prefault_threads = topology.threads(),
                                                       .policy = numa.placement.memory,
                                                       .nodes = numa.placement.memory_nodes,
                                                       .topology = &topology});
  if (!arena.ok()) return arena.status();
  if (!arena->binding().ok()) numa.give_up_memory(arena->binding());
  running_->arena = std::move(arena).value();
  Result<std::unique_ptr<DeviceSession>> device =
      device_->open({.arena_bytes = device_bytes_, .on_finished = wake});
  if (!device.ok()) return device.status();
  running_->device = std::move(device).value();
  state_.device = running_->device.get();
  SLUICE_RETURN_IF_ERROR(carve_frames());

  fixed_stats_.host_reserved_bytes = running_->arena.span().size();
  fixed_stats_.device_reserved_bytes = state_.device->arena().size();
  state_.counters.nvme_reserved_bytes = report.nvme_bytes;
  fixed_stats_.hugetlb_bytes = running_->arena.hugetlb_bytes();
  fixed_stats_.state_bytes = report.state_bytes;
  fixed_stats_.chunks = report.chunks;
  fixed_stats_.resident_chunks = report.resident_chunks;
  fixed_stats_.backend = state_.store ? std::string(running_->backend->name()) : "none";
  fixed_stats_.direct = state_.store ? state_.store->direct() : "none";
  fixed_stats_.ring = "none";
  fixed_stats_.host_backing = running_->arena.backing();
  fixed_stats_.device_backing = state_.device->backing();
  fixed_stats_.isa = kernels::isa_name(kernels::isa_in_use());
  fixed_stats_.threads = state_.compute->threads();
  fixed_stats_.crash_cost = crash_cost(options_);
  fixed_stats_.fallbacks = topology.notes;
  for (const std::string& reason : running_->drive_choice.fallbacks) fixed_stats_.fallbacks.push_back(reason);
  fixed_stats_.drives = running_->drive_choice.stats;
  if (!backend->fallback_reason.empty()) fixed_stats_.fallbacks.push_back(backend->fallback_reason);
  if (state_.store)
    for (std::string& reason : state_.store->fallback_reasons())
      fixed_stats_.fallbacks.push_back(std::move(reason));
  if (report.spilled_gradient_bytes > 0)
    fixed_stats_.fallbacks.push_back(
        fmt::format("gradients do not fit in host memory: {} bytes on NVMe hold those needed last",
                    report.spilled_gradient_bytes));
  return {};
}

void Core::register_io() {
  if (state_.store == nullptr) return;
  // What is refused goes on unregistered; in_use() has the note.
  io::Backend& backend = *running_->backend;
  const std::array regions{running_->arena.span()};
  if (!running_->arena.span().empty()) (void)backend.register_memory(regions);
  (void)backend.register_files(state_.store->descriptors());
  const io::BackendUse use = backend.in_use();
  fixed_stats_.ring = use.ring.empty() ? "none" : use.ring;
  fixed_stats_.registered_memory = use.registered_memory;
  fixed_stats_.registered_files = use.registered_files;
  std::ranges::copy(use.notes, std::back_inserter(fixed_stats_.fallbacks));
}

void Core::bind_loop() {
  NumaUse& numa = *running_->numa;
  if (!numa.placement.io_cpus.empty()) {
    const Status bound = running_->loop->bind(numa.topology, numa.placement.io_cpus);
    if (!bound.ok()) numa.give_up_threads(bound);
  }
  fixed_stats_.numa = numa.text();
  fixed_stats_.fallbacks.insert(fixed_stats_.fallbacks.end(), numa.refusals.begin(), numa.refusals.end());
  running_->numa.reset();
}

Status Core::carve_frames() {
  const plan::HostPartition& partition = state_.partition;
  std::span<std::byte> rest = running_->arena.span();
  const auto take = [&rest](std::uint64_t bytes) {
    const std::span<std::byte> taken = rest.first(bytes);
    rest = rest.subspan(bytes);
    return taken;
  };
  const auto pool = [&take](std::optional<memory::FramePool>& frames, std::uint64_t frame_bytes,
                            std::uint32_t count) {
    const std::uint64_t bytes = std::max<std::uint64_t>(frame_bytes, kPage);
    frames.emplace(take(count == 0 ? 0 : bytes * count), bytes, count);
  };
  pool(running_->record_frames, partition.record_frame_bytes, partition.record_frames);
  pool(running_->gradient_frames, partition.gradient_frame_bytes, partition.gradient_frames);
  pool(running_->weight_frames, partition.weight_frame_bytes, partition.weight_frames);
  for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk)
    if (partition.resident[chunk])
      state_.chunks[chunk].resident = take(state_.chunk_layout(chunk).record.bytes).data();
  running_->commit_buffer = take(commit_record_bytes_);
  running_->exchange = rest;

  running_->records = std::make_unique<Records>(state_);
  running_->commits = std::make_unique<Commits>(state_, *running_->records,
                                                CommitOptions{.keep_commits = options_.keep_commits,
                                                              .buffer = running_->commit_buffer,
                                                              .exchange = running_->commit_exchange.get(),
                                                              .now_ns = parts_.now_ns});
  running_->weights =
      std::make_unique<HostWeights>(state_, *running_->records, *running_->commits, *running_->weight_frames);
  running_->gather = std::make_unique<Gather>(state_, *running_->weights, gather_options_);
  running_->gradients = std::make_unique<Gradients>(state_, *running_->records, *running_->gradient_frames);
  running_->updates =
      std::make_unique<RecordUpdates>(state_, *running_->records, *running_->commits, *running_->gradients,
                                      *running_->record_frames, options_.undo);
  running_->early =
      std::make_unique<EarlyUpdates>(state_, *running_->updates, *running_->gradients, options_.undo);
  running_->step = std::make_unique<Step>(state_, *running_->updates, *running_->early, *running_->commits,
                                          *running_->gradients);
  return running_->gather->place_kept();
}

}  // namespace sluice::engine
