#include "store/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/random.hpp"
#include "store/names.hpp"
#include "store/offsets.hpp"

namespace sluice::store {
namespace {

/// From the records to those with the numbers in `wanted`; `records` keeps the others. Both ascend.
/// Errors: kInvalidArgument for a number that is not there.
Result<std::vector<HeldCommit>> take_commits(std::vector<HeldCommit>& records,
                                             std::span<const std::uint64_t> wanted) {
  std::vector<HeldCommit> taken;
  for (const std::uint64_t number : wanted) {
    const auto found =
        std::ranges::find(records, number, [](const HeldCommit& commit) { return commit.record.number; });
    if (found == records.end()) {
      return Status(Code::kInvalidArgument, fmt::format("commit {} is not held by this rank", number));
    }
    taken.push_back(std::move(*found));
    records.erase(found);
  }
  return taken;
}

/// Whether spares leave others what they need: frozen records that commits name room to grow, and as many ranks as there
/// are, should they share the drives, the same.
Result<bool> leaves_room(const Drives& drives, const StoreOptions& options) {
  const auto is_frozen = [](const ChunkLayout& chunk) { return chunk.gradient_bytes == 0; };
  if (options.keep_commits > 0 && std::ranges::any_of(options.chunks, is_frozen)) return false;
  const auto count = static_cast<std::uint32_t>(drives.directories().size());
  SLUICE_ASSIGN_OR_RETURN(const ContainerPlan plan, plan_containers(options, count));
  for (std::uint32_t drive = 0; drive < count; ++drive) {
    SLUICE_ASSIGN_OR_RETURN(const io::Space space, drives.directories()[drive].space());
    if (space.available_bytes / options.world < plan.slots.container_bytes(drive)) return false;
  }
  return true;
}

}  // namespace

Store::Store(const StoreOptions& options, const Superblock& superblock, SlotTable slots)
    : slots_(std::move(slots)),
      owner_(Owner::make()),
      superblock_(superblock),
      nvme_budget_bytes_(options.nvme_budget_bytes) {}

Store::~Store() {
  if (owner_.is_this_process()) (void)close();
}

Result<std::unique_ptr<Store>> Store::create(const Drives& drives, const StoreOptions& options) {
  // What only makes a store faster gives way where room is short: spares first, then shares by the drives' speed.
  StoreOptions leaner = options;
  SLUICE_ASSIGN_OR_RETURN(const bool spares, leaves_room(drives, options));
  if (!spares) leaner.spares = Spares::kNone;
  auto store = create_exactly(drives, leaner);
  const auto lacks_room = [&] {
    return store.status().code() == Code::kNoSpace || store.status().code() == Code::kResourceExhausted;
  };
  if (lacks_room() && leaner.spares != Spares::kNone) {
    leaner.spares = Spares::kNone;
    store = create_exactly(drives, leaner);
  }
  if (lacks_room() && !leaner.drive_weights.empty()) {
    leaner.drive_weights = {};
    store = create_exactly(drives, leaner);
  }
  return store;
}

Result<std::unique_ptr<Store>> Store::create_exactly(const Drives& drives, const StoreOptions& options) {
  const auto count = static_cast<std::uint32_t>(drives.directories().size());
  SLUICE_ASSIGN_OR_RETURN(ContainerPlan plan, plan_containers(options, count));
  SLUICE_RETURN_IF_ERROR(check_budget(options, count));
  io::fill_random(plan.superblock.volume_id);
  std::unique_ptr<Store> store(new Store(options, plan.superblock, std::move(plan.slots)));
  const Status status = store->make(drives, options, plan.catalog);
  if (status.ok()) return store;
  for (Drive& drive : store->drives_) (void)store->leave(drive);
  store->drives_.clear();
  return status;
}

Status Store::make(const Drives& drives, const StoreOptions& options, std::span<const std::byte> catalog) {
  for (const io::Directory& root : drives.directories()) SLUICE_RETURN_IF_ERROR(claim(root));
  for (std::uint32_t drive = 0; drive < drive_count(); ++drive) {
    SLUICE_RETURN_IF_ERROR(make_container(drive, catalog));
  }
  SLUICE_RETURN_IF_ERROR(make_gradients(options));
  for (std::uint32_t drive = 0; drive < drive_count(); ++drive) {
    SLUICE_RETURN_IF_ERROR(write_superblock(drive));
  }
  return {};
}

Status Store::claim(const io::Directory& root) {
  SLUICE_ASSIGN_OR_RETURN(io::Directory reopened, root.reopen());
  SLUICE_ASSIGN_OR_RETURN(io::Directory store,
                          root.subdirectory(store_name(superblock_.store_id), io::Creation::kIfMissing));
  auto rank = store.subdirectory(rank_name(superblock_.rank), io::Creation::kExclusive);
  if (!rank.ok()) {
    (void)root.remove(store_name(superblock_.store_id));  // unless other ranks are in it
    return rank.status();
  }
  Drive& drive = drives_.emplace_back(
      Drive{.root = std::make_shared<const io::Directory>(std::move(reopened)),
            .store = std::make_shared<const io::Directory>(std::move(store)),
            .rank = std::move(*rank),
            .container_bytes = slots_.container_bytes(static_cast<std::uint32_t>(drives_.size()))});
  SLUICE_ASSIGN_OR_RETURN(drive.lock, Lock::acquire(drive.rank, io::Creation::kExclusive));
  return drive.lock->sign(owner_);
}

Status Store::make_container(std::uint32_t index, std::span<const std::byte> catalog) {
  Drive& drive = drives_[index];
  SLUICE_ASSIGN_OR_RETURN(drive.data,
                          io::File::open(drive.rank, kDataName, {.creation = io::Creation::kExclusive}));
  // Zeros throughout, so that every place for a commit record is an erased one.
  SLUICE_RETURN_IF_ERROR(drive.data->preallocate(drive.container_bytes));
  SLUICE_RETURN_IF_ERROR(check_grid(*drive.data));
  reserved_bytes_ += drive.container_bytes;
  if (catalog.empty()) return {};
  SLUICE_RETURN_IF_ERROR(drive.data->write_exact(superblock_.catalog_offset, catalog));
  return drive.data->flush();
}

Status Store::write_superblock(std::uint32_t index) const {
  const Drive& drive = drives_[index];
  std::vector<std::byte> bytes(std::max<std::size_t>(superblock_.grid_bytes, kSuperblockBytes));
  encode_superblock(index, Committed::kNo, bytes);
  SLUICE_RETURN_IF_ERROR(drive.data->write_exact(0, bytes));
  if (superblock_.keep_commits == 0) return {};
  SLUICE_RETURN_IF_ERROR(drive.data->flush());
  for (const io::Directory* directory : {&drive.rank, drive.store.get(), drive.root.get()}) {
    SLUICE_RETURN_IF_ERROR(directory->sync());
  }
  return {};
}

Status Store::make_gradients(const StoreOptions& options) {
  gradient_places_ = gradient_places(options, drive_count());
  std::vector<std::uint64_t> bytes_by_drive(drive_count());
  for (const io::Place& place : gradient_places_)
    bytes_by_drive[place.drive] += options.spilled_gradient_bytes;
  for (std::uint32_t index = 0; index < drive_count(); ++index) {
    Drive& drive = drives_[index];
    const std::uint64_t bytes = bytes_by_drive[index];
    if (bytes == 0) continue;
    SLUICE_ASSIGN_OR_RETURN(
        drive.gradients, io::File::open(drive.rank, kGradientsName, {.creation = io::Creation::kExclusive}));
    SLUICE_RETURN_IF_ERROR(drive.rank.remove(kGradientsName));
    SLUICE_RETURN_IF_ERROR(drive.gradients->preallocate(bytes));
    SLUICE_RETURN_IF_ERROR(check_grid(*drive.gradients));
    reserved_bytes_ += bytes;
  }
  return {};
}

std::vector<int> Store::descriptors() const {
  std::vector<int> descriptors;
  for (const Drive& drive : drives_) {
    descriptors.push_back(drive.data->fd());
    if (drive.gradients) descriptors.push_back(drive.gradients->fd());
  }
  return descriptors;
}

Result<std::unique_ptr<Store>> Store::open(const Drives& drives, const StoreOptions& options,
                                           ExistingRank existing, std::span<const std::uint64_t> kept) {
  const bool all_there = existing.whole && existing.drives.size() == existing.superblock->drives;
  if (!all_there || existing.drives.size() != drives.directories().size() || kept.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} commits of a store on {} drives, opened in {} directories{}", kept.size(),
                              existing.drives.size(), drives.directories().size(),
                              existing.whole ? "" : "; " + existing.missing));
  }
  std::vector<std::uint64_t> container_bytes;
  for (const ExistingDrive& drive : existing.drives) {
    if (!drive.lock) {
      return Status(Code::kInternal, fmt::format("{}: opened without its lock", drive.rank.path()));
    }
    container_bytes.push_back(drive.superblock->container_bytes);
  }
  const Roaming roaming =
      existing.superblock->version >= kRoamingVersion ? Roaming::kAnyDrive : Roaming::kHome;
  SLUICE_ASSIGN_OR_RETURN(SlotTable slots, SlotTable::restore(existing.catalog, container_bytes, roaming));
  std::unique_ptr<Store> store(new Store(options, *existing.superblock, std::move(slots)));
  store->keep();
  Status status = store->take_over(std::move(existing), kept);
  if (status.ok()) status = check_budget_of(options, store->reserved_bytes_);
  if (status.ok()) status = store->make_gradients(options);
  if (status.ok()) return store;
  for (Drive& drive : store->drives_) (void)store->leave(drive);
  store->drives_.clear();
  return status;
}

Status Store::take_over(ExistingRank existing, std::span<const std::uint64_t> kept) {
  for (ExistingDrive& drive : existing.drives) {
    drives_.push_back({.root = std::move(drive.root),
                       .store = std::move(drive.store),
                       .rank = std::move(drive.rank),
                       .lock = std::move(drive.lock),
                       .data = std::move(drive.data),
                       .container_bytes = drive.superblock->container_bytes});
  }
  SLUICE_ASSIGN_OR_RETURN(kept_, take_commits(existing.commits, kept));
  SLUICE_RETURN_IF_ERROR(take_references());
  sort_places(existing.commits, existing.unreadable);
  for (std::uint32_t index = 0; index < drive_count(); ++index) {
    const Drive& drive = drives_[index];
    SLUICE_RETURN_IF_ERROR(check_grid(*drive.data));
    SLUICE_ASSIGN_OR_RETURN(const std::uint64_t file_bytes, drive.data->size());
    if (file_bytes < slots_.container_bytes(index)) {
      return Status(Code::kDataLoss,
                    fmt::format("{}: truncated, {} bytes are there, its commits name slots up to byte {}",
                                drive.data->path(), file_bytes, slots_.container_bytes(index)));
    }
    reserved_bytes_ += file_bytes;
    // Of a run that ended between making and unlinking it.
    const Status removed = drive.rank.remove(kGradientsName);
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  }
  return {};
}

Status Store::take_references() {
  const auto retain_all = [&](const CommitRecord& record) -> Status {
    for (std::uint32_t chunk = 0; chunk < record.chunks.size(); ++chunk) {
      SLUICE_RETURN_IF_ERROR(
          slots_.retain(chunk, record.chunks[chunk].place)
              .with_context(fmt::format("{}: commit {}", drives_[0].rank.path(), record.number)));
    }
    return {};
  };
  for (const HeldCommit& commit : kept_) SLUICE_RETURN_IF_ERROR(retain_all(commit.record));
  return retain_all(kept_.back().record);
}

void Store::sort_places(const std::vector<HeldCommit>& others, const std::vector<PlaceOnDrive>& unreadable) {
  for (std::uint32_t drive = 0; drive < drive_count(); ++drive) {
    const HeldCommit& current = kept_.back();
    if (current.places[drive]) continue;
    // Where its other copies are, unless another commit that is kept lies there.
    std::uint32_t place =
        **std::ranges::find_if(current.places, [](const auto& at) { return at.has_value(); });
    const auto is_kept = [&](std::uint32_t candidate) {
      return std::ranges::any_of(kept_,
                                 [&](const HeldCommit& commit) { return commit.places[drive] == candidate; });
    };
    if (is_kept(place)) {
      for (place = 0; is_kept(place);) ++place;
    }
    to_rewrite_.push_back({drive, place});
  }
  const auto erase = [&](PlaceOnDrive place) {
    if (std::ranges::find(to_rewrite_, place) == to_rewrite_.end()) to_erase_.push_back(place);
  };
  // A place that comes back one day must not bring a commit whose slots were given out.
  for (const PlaceOnDrive& place : unreadable) erase(place);
  for (const HeldCommit& commit : others) {
    for (std::uint32_t drive = 0; drive < drive_count(); ++drive) {
      if (commit.places[drive]) erase({drive, *commit.places[drive]});
    }
  }
}

void Store::forget_recovery() {
  kept_ = std::vector<HeldCommit>();
  to_erase_ = std::vector<PlaceOnDrive>();
  to_rewrite_ = std::vector<PlaceOnDrive>();
}

Status Store::check_grid(const io::File& file) const {
  const std::uint32_t grid_bytes = file.grid().offset_bytes;
  if (superblock_.grid_bytes % grid_bytes == 0) return {};
  return Status(Code::kFailedPrecondition,
                fmt::format("{}: direct I/O works on a grid of {} bytes, chunks are laid out on {}",
                            file.path(), grid_bytes, superblock_.grid_bytes));
}

Result<io::Place> Store::grow_slot(std::uint32_t chunk) {
  const SlotTable::Growth growth = slots_.next_growth(chunk);
  io::File& file = data(growth.place.drive);
  SLUICE_ASSIGN_OR_RETURN(const std::uint64_t file_bytes, file.size());
  if (growth.container_bytes > kFileBytesMax) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{}: chunk {} does not fit one file any more", file.path(), chunk));
  }
  const std::uint64_t more_bytes = growth.container_bytes - std::min(growth.container_bytes, file_bytes);
  if (nvme_budget_bytes_ > 0 && more_bytes > nvme_budget_bytes_ - reserved_bytes_) {
    return Status(
        Code::kResourceExhausted,
        fmt::format("{}: a commit names the only record of frozen chunk {}, another one needs {} bytes "
                    "beside the {} that are in use, nvme_budget_bytes = {}; the smallest that would do is {}",
                    file.path(), chunk, more_bytes, reserved_bytes_, nvme_budget_bytes_,
                    reserved_bytes_ + more_bytes));
  }
  SLUICE_RETURN_IF_ERROR(file.preallocate(growth.container_bytes));
  reserved_bytes_ += more_bytes;
  slots_.grow(chunk, growth);
  return growth.place;
}

Superblock Store::superblock_of(std::uint32_t drive) const {
  Superblock superblock = superblock_;
  superblock.drive = drive;
  superblock.container_bytes = drives_[drive].container_bytes;
  return superblock;
}

void Store::encode_superblock(std::uint32_t drive, Committed committed, std::span<std::byte> target) const {
  Superblock superblock = superblock_of(drive);
  superblock.committed = committed == Committed::kYes;
  const SuperblockBytes bytes = encode(superblock);
  std::ranges::fill(std::ranges::copy(bytes, target.begin()).out, target.end(), std::byte{0});
}

std::uint64_t Store::place_offset(std::uint32_t place) const {
  return superblock_.places_offset + place * superblock_.place_bytes;
}

std::string Store::direct() const { return fallback_reasons().empty() ? "O_DIRECT" : "buffered"; }

std::vector<std::string> Store::fallback_reasons() const {
  std::vector<std::string> reasons;
  for (const Drive& drive : drives_) {
    for (const auto* file : {&drive.data, &drive.gradients}) {
      if (*file && !(*file)->direct()) {
        reasons.push_back(fmt::format("{}: {}", (*file)->path(), (*file)->fallback_reason()));
      }
    }
  }
  return reasons;
}

Status Store::close() {
  Status first;
  for (Drive& drive : drives_) {
    drive.data.reset();
    drive.gradients.reset();
    const auto guard = NamesGuard::acquire(*drive.root);
    const Status status = guard.ok() ? leave(drive) : guard.status();
    if (first.ok()) first = status;
    drive.lock.reset();
  }
  drives_.clear();
  return first;
}

Status Store::leave(Drive& drive) const {
  const Status status = keep_ ? Status() : remove_rank(*drive.root, *drive.store, drive.rank);
  drive.lock.reset();
  return status;
}

}  // namespace sluice::store
