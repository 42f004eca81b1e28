#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/core.hpp"
#include "engine/resident_loader.hpp"
#include "io/random.hpp"

namespace sluice::engine {
store::StoreOptions Core::store_options() const {
  return {.rank = communicator_->rank(),
          .world = communicator_->world(),
          .store_id = store_id_,
          .generation = recovery_->choice ? recovery_->choice->generation + 1 : 0,
          .parent_store_id = recovery_->choice ? recovery_->choice->store_id : 0,
          .keep_commits = options_.keep_commits,
          .record_bytes_max = commit_record_bytes_,
          .undo = options_.undo,
          .chunk_elements = options_.chunk_elements,
          .grid_bytes = grid_bytes_,
          .chunks = state_.layout.chunks(),
          .stored_chunks = stored_chunks_,
          .parameters = stored_parameters_,
          .aliases = state_.registry.aliases(),
          .drive_weights = running_->drive_choice.weights,
          .spares = store::Spares::kSome,
          .spilled_gradient_slots = state_.partition.spilled_gradients,
          .spilled_gradient_bytes = state_.partition.gradient_frame_bytes,
          .nvme_budget_bytes = options_.nvme_budget_bytes};
}

Status Core::find_stores() {
  std::vector<std::string> directories = options_.directories;
  directories.insert(directories.end(), options_.recover_directories.begin(),
                     options_.recover_directories.end());
  SLUICE_ASSIGN_OR_RETURN(recovery_->drives, store::Drives::open(directories, io::Access::kReadWrite));
  const Turn turn(*recovery_, communicator_->world());
  SLUICE_RETURN_IF_ERROR(turn.status());
  SLUICE_ASSIGN_OR_RETURN(recovery_->mine, store::find_existing(recovery_->drives->directories(),
                                                                {.claim = store::Claim::kLock,
                                                                 .rank = communicator_->rank(),
                                                                 .world = communicator_->world()},
                                                                store::Owner::make()));
  return {};
}

Status Core::choose_store() {
  std::vector<store::RankSummary> own;
  for (const store::ExistingRank& rank : recovery_->mine) own.push_back(store::summarize(rank));
  const std::uint32_t world = communicator_->world(), rank = communicator_->rank();
  std::vector<std::uint64_t> counts(world);
  counts[rank] = own.size();
  const GatheredShards of_counts{reinterpret_cast<std::byte*>(counts.data()), sizeof(std::uint64_t)};
  SLUICE_RETURN_IF_ERROR(communicator_->all_gather({&of_counts, 1}));
  const std::uint64_t most = *std::ranges::max_element(counts);
  std::vector<store::RankSummary> shared(world * most);
  std::ranges::copy(own, shared.begin() + static_cast<std::ptrdiff_t>(rank * most));
  const GatheredShards of_summaries{reinterpret_cast<std::byte*>(shared.data()),
                                    most * sizeof(store::RankSummary)};
  SLUICE_RETURN_IF_ERROR(communicator_->all_gather({&of_summaries, 1}));
  std::vector<store::RankSummary> all;
  for (std::uint32_t from = 0; from < world; ++from)
    for (std::uint64_t i = 0; i < counts[from]; ++i) all.push_back(shared[from * most + i]);

  const bool any_store = std::ranges::any_of(all, [](const auto& summary) { return summary.world > 0; });
  if (options_.existing == OnExisting::kRefuse && any_store)
    return Status(Code::kAlreadyExists,
                  fmt::format("{}: a store of an earlier run is there", options_.directories.front()));
  const std::optional<std::uint64_t> wanted =
      options_.recover_commit == 0 ? std::nullopt : std::optional(options_.recover_commit);
  SLUICE_ASSIGN_OR_RETURN(recovery_->choice, store::choose_store(all, wanted));
  if (recovery_->choice && (options_.keep_commits == 0 || options_.existing == OnExisting::kReplaceScratch))
    return Status(
        Code::kAlreadyExists,
        fmt::format("{}: a store with commits ({}) is there; go on from it (OnExisting::kRecover with "
                    "keep_commits > 0), name another directory or remove it",
                    options_.directories.front(), fmt::join(recovery_->choice->kept, ", ")));
  return {};
}

void Core::set_apart() {
  std::vector<store::ExistingRank> chosen;
  for (store::ExistingRank& rank : recovery_->mine) {
    const bool is_chosen = recovery_->choice && rank.store_id == recovery_->choice->store_id;
    // Without a choice no commit was ever held by all ranks.
    const bool holds_commits = recovery_->choice && !rank.commits.empty();
    (is_chosen ? chosen : holds_commits ? recovery_->superseded : recovery_->idle).push_back(std::move(rank));
  }
  recovery_->mine = std::move(chosen);
}

Status Core::remove_stores(std::vector<store::ExistingRank>& stores) {
  const Turn turn(*recovery_, communicator_->world());
  SLUICE_RETURN_IF_ERROR(turn.status());
  for (store::ExistingRank& rank : stores) SLUICE_RETURN_IF_ERROR(store::remove_existing(std::move(rank)));
  stores.clear();
  return {};
}

std::vector<std::string> Core::differences_of(const store::ExistingRank& existing) const {
  return store::Store::differences(existing, store_options(),
                                   static_cast<std::uint32_t>(options_.directories.size()));
}

bool Core::can_go_on_in_place() const {
  if (!recovery_->choice || recovery_->choice->world != communicator_->world()) return false;
  if (recovery_->mine.size() != 1) return false;
  const store::ExistingRank& existing = recovery_->mine.front();
  const bool all_here = std::ranges::all_of(existing.drives, [&](const store::ExistingDrive& drive) {
    return std::ranges::find(options_.directories, drive.root->path()) != options_.directories.end();
  });
  return all_here && existing.rank == communicator_->rank() && differences_of(existing).empty();
}

Result<bool> Core::all_can_go_on_in_place() const {
  std::vector<std::byte> in_place(communicator_->world());
  in_place[communicator_->rank()] = std::byte{can_go_on_in_place()};
  const GatheredShards shards{in_place.data(), 1};
  SLUICE_RETURN_IF_ERROR(communicator_->all_gather({&shards, 1}));
  return std::ranges::find(in_place, std::byte{0}) == in_place.end();
}

void Core::take_settings(const std::vector<store::GroupSettings>& groups, std::uint64_t seed) {
  Recovered& report = recovery_->report;
  for (const store::GroupSettings& group : groups) report.groups.push_back({group.name, group.optimizer});
  compare_settings(state_.registry, options_.seed, groups, seed, report.differences);
  state_.seed = seed;
}

Status Core::go_on_in_place() {
  const Turn turn(*recovery_, communicator_->world());
  SLUICE_RETURN_IF_ERROR(turn.status());
  std::vector<std::string> directories;
  for (const store::ExistingDrive& drive : recovery_->mine.front().drives)
    directories.push_back(drive.root->path());
  running_->drive_choice = in_order_of(directories, running_->drive_choice);
  SLUICE_ASSIGN_OR_RETURN(running_->store,
                          store::Store::open(*running_->drives, store_options(),
                                             std::move(recovery_->mine.front()), recovery_->choice->kept));
  recovery_->mine.clear();
  const store::CommitRecord& record = running_->store->kept().back().record;
  recovery_->step_counts = record.step_counts;
  recovery_->steps = record.steps;
  Recovered& report = recovery_->report;
  report.user_bytes = record.user_bytes;
  take_settings(record.groups, record.seed);
  return {};
}

// What ranks of communicators of their own hold goes from each old rank to the new one of its number.
Status Core::check_held_apart() const {
  const store::StoreReader& reader = *recovery_->reader;
  if (recovery_->choice->world <= communicator_->world()) return {};
  for (const std::optional<std::uint32_t> parameter : recovery_->source.parameters)
    if (parameter && reader.held_apart(*parameter))
      return Status(
          Code::kFailedPrecondition,
          fmt::format("'{}': {} ranks with communicators of their own may hold it differently, of which "
                      "{} would be lost in a world of {}",
                      reader.parameters()[*parameter].name, recovery_->choice->world,
                      recovery_->choice->world - communicator_->world(), communicator_->world()));
  return {};
}

Status Core::open_source() {
  const store::Choice& choice = *recovery_->choice;
  SLUICE_ASSIGN_OR_RETURN(std::vector<store::ExistingRank> found,
                          store::find_existing(recovery_->drives->directories(),
                                               {.claim = store::Claim::kLook}, store::Owner::make()));
  std::erase_if(found, [&](const store::ExistingRank& rank) { return rank.store_id != choice.store_id; });
  SLUICE_ASSIGN_OR_RETURN(recovery_->reader,
                          store::StoreReader::open(std::move(found), {.store_id = choice.store_id,
                                                                      .commit = choice.commit,
                                                                      .near_rank = communicator_->rank()}));
  store::StoreReader& reader = *recovery_->reader;
  SLUICE_ASSIGN_OR_RETURN(recovery_->source, match(state_.registry, reader, options_.recovery));
  SLUICE_RETURN_IF_ERROR(check_held_apart());
  first_values_.recovered.assign(state_.registry.tensors().size(), false);
  for (std::uint32_t tensor = 0; tensor < first_values_.recovered.size(); ++tensor) {
    const std::optional<std::uint32_t> parameter = recovery_->source.parameters[tensor];
    first_values_.recovered[tensor] = parameter.has_value();
    recovery_->step_counts.push_back(parameter ? reader.parameters()[*parameter].step_count : 0);
  }
  recovery_->steps = reader.steps();
  Recovered& report = recovery_->report;
  report.rewritten = true;
  report.user_bytes = reader.user_bytes(communicator_->rank() % choice.world);
  report.differences = recovery_->source.differences;
  for (const store::ExistingRank& rank : recovery_->mine)
    if (rank.rank == communicator_->rank())
      for (std::string& difference : differences_of(rank))
        report.differences.push_back(std::move(difference));
  take_settings(reader.groups(), reader.seed());
  return {};
}

Status Core::check_recovered() {
  Recovered& report = recovery_->report;
  report.commit = recovery_->choice->commit;
  report.step = recovery_->steps;
  if (report.user_bytes.size() > options_.max_user_bytes)
    return Status(Code::kInvalidArgument,
                  fmt::format("max_user_bytes = {} is too small for the {} user bytes of commit {}",
                              options_.max_user_bytes, report.user_bytes.size(), report.commit));
  return options_.accept ? options_.accept(report) : Status();
}

Status Core::make_store() {
  const Turn turn(*recovery_, communicator_->world());
  SLUICE_RETURN_IF_ERROR(turn.status());
  store::StoreOptions options = store_options();
  for (const auto* ranks : {&recovery_->mine, &recovery_->superseded})
    for (const store::ExistingRank& rank : *ranks)
      for (const store::ExistingDrive& drive : rank.drives)
        if (drive.superblock) options.nvme_bytes_in_use += drive.superblock->container_bytes;
  if (options.keep_commits == 0 && stored_chunks_.empty() && options.spilled_gradient_slots == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(running_->store, store::Store::create(*running_->drives, options));
  return {};
}

Status Core::open_store(SealReport& report) {
  state_.seed = options_.seed;
  state_.step = options_.first_step;
  // The same id on every rank, another one in every run.
  std::vector<std::uint64_t> ids(communicator_->world());
  ids[communicator_->rank()] = io::random_u64();
  const GatheredShards shards{reinterpret_cast<std::byte*>(ids.data()), sizeof(std::uint64_t)};
  SLUICE_RETURN_IF_ERROR(communicator_->all_gather({&shards, 1}));
  store_id_ = ids[0];
  // Also where all state fits in memory: what is there may not be replaced unseen, and dead runs leave nothing behind.
  if (options_.directories.empty()) return {};

  recovery_ = std::make_unique<Recovery>();
  SLUICE_RETURN_IF_ERROR(agree(*communicator_, find_stores()));
  SLUICE_RETURN_IF_ERROR(choose_store());
  set_apart();
  bool in_place = false;
  if (recovery_->choice) {
    SLUICE_ASSIGN_OR_RETURN(in_place, all_can_go_on_in_place());
    SLUICE_RETURN_IF_ERROR(agree(*communicator_, in_place ? go_on_in_place() : open_source()));
    SLUICE_RETURN_IF_ERROR(agree(*communicator_, check_recovered()));
  }
  // Nothing of any store was changed so far.
  SLUICE_RETURN_IF_ERROR(agree(*communicator_, remove_stores(recovery_->idle)));
  if (!in_place) SLUICE_RETURN_IF_ERROR(agree(*communicator_, make_store()));
  recovery_->guards.clear();
  state_.store = running_->store.get();
  if (state_.store != nullptr) report.nvme_bytes = state_.store->reserved_bytes();
  return {};
}

Status Core::move_now(io::Transfer transfer) {
  struct Waited : io::Transfer {
    bool done = false;
  } waited;
  static_cast<io::Transfer&>(waited) = transfer;
  waited.file = &state_.store->data(transfer.drive);
  waited.on_done = [](io::Transfer& finished) { static_cast<Waited&>(finished).done = true; };
  state_.queue->submit(waited);
  while (!waited.done)
    if (state_.queue->poll() == 0) state_.queue->wait();
  return waited.status;
}

Status Core::flush_now(std::uint32_t drive) {
  io::Transfer flush;
  flush.op = io::Op::kFlush;
  flush.drive = drive;
  return move_now(flush);
}

Status Core::apply_repairs() {
  store::Store& store = *state_.store;
  const std::uint64_t grid_bytes = store.superblock().grid_bytes;
  const store::HeldCommit& chosen = store.kept().back();
  SLUICE_ASSIGN_OR_RETURN(
      const memory::Arena arena,
      memory::Arena::create(
          {.bytes = round_up(store::commit_record_bytes(store::size_of(chosen.record)), grid_bytes),
           .purpose = "a recovered commit record"}));
  io::Transfer write;
  write.op = io::Op::kWrite;
  write.buffer = arena.span().data();
  // First the record, on every drive: a copy that can be read may still be in a cache alone.
  write.bytes = round_up(store::encode(chosen.record, arena.span()), grid_bytes);
  const auto place_on = [&](std::uint32_t drive) {
    if (chosen.places[drive]) return *chosen.places[drive];
    return std::ranges::find(store.to_rewrite(), drive, &store::PlaceOnDrive::drive)->place;
  };
  for (write.drive = 0; write.drive < store.drive_count(); ++write.drive) {
    write.offset = store.place_offset(place_on(write.drive));
    SLUICE_RETURN_IF_ERROR(move_now(write).with_context("restore a copy of a commit record"));
    SLUICE_RETURN_IF_ERROR(flush_now(write.drive));
  }
  // Then the others go, the oldest first, each durably before the next: a newer one must not outlive the slots that
  // an older one names.
  std::ranges::fill(arena.span().first(grid_bytes), std::byte{0});
  write.bytes = grid_bytes;
  for (const auto& [drive, other] : store.to_erase()) {
    write.drive = drive;
    write.offset = store.place_offset(other);
    SLUICE_RETURN_IF_ERROR(move_now(write).with_context("erase a commit record that is not gone on from"));
    SLUICE_RETURN_IF_ERROR(flush_now(drive));
  }
  running_->commits->adopt(store.kept());
  const std::vector<store::CommittedChunk>& chunks = store.kept().back().record.chunks;
  for (std::uint32_t chunk = 0; chunk < state_.chunks.size(); ++chunk) {
    state_.chunks[chunk].current = chunks[chunk].place;
    state_.chunks[chunk].checksums = chunks[chunk].checksums;
  }
  store.forget_recovery();
  return {};
}

Status Core::load_residents() {
  ResidentLoader loader(state_, *running_->records, *running_->commits);
  return loop().call([&](Ticket& ticket) {
    loader.load([&](Status status) { loop().complete(ticket, std::move(status)); });
  });
}

void Core::restore_numbers() {
  for (std::uint32_t tensor = 0; tensor < recovery_->step_counts.size(); ++tensor)
    state_.registry.tensors()[tensor].step_count = recovery_->step_counts[tensor];
  state_.step = recovery_->steps;
}

Status Core::commit_rewritten() {
  running_->commits->number_from(recovery_->choice->commit);
  SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
    running_->commits->begin({.user_bytes = recovery_->report.user_bytes}, [&](const CommitResult& result) {
      loop().complete(ticket, result.status.with_context("commit of the rewritten store"));
    });
  }));
  recovery_->reader.reset();
  return agree(*communicator_, remove_stores(recovery_->mine));
}

Status Core::finish_recovery(SealReport& report) {
  if (!recovery_ || !recovery_->choice) return {};
  restore_numbers();
  SLUICE_RETURN_IF_ERROR(recovery_->reader ? commit_rewritten() : agree(*communicator_, load_residents()));
  // What the state was made from goes once the state itself is flushed.
  SLUICE_RETURN_IF_ERROR(agree(*communicator_, remove_stores(recovery_->superseded)));
  report.recovered = std::move(recovery_->report);
  return {};
}

}  // namespace sluice::engine
