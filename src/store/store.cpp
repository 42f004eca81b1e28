#include "store/store.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <utility>

#include "store/existing.hpp"
#include "store/names.hpp"
#include "store/random.hpp"
#include "store/superblock.hpp"

namespace sluice::store {
namespace {

constexpr std::uint32_t kGridMin = 4096;
constexpr std::uint64_t kTooMany = std::numeric_limits<std::uint64_t>::max();

std::uint64_t slots_offset(const StoreOptions& options) {
  return std::max<std::uint64_t>(options.grid_bytes, kSuperblockBytes);
}

SlotOptions slot_options(const StoreOptions& options, Undo undo) {
  return {.chunks = options.chunks,
          .stored_chunks = options.stored_chunks,
          .drives = static_cast<std::uint32_t>(options.directories.size()),
          .undo = undo,
          .first_offset = slots_offset(options)};
}

/// Slot s lies on drive s % drives: with 5 slots on 2 drives drive 0 has 3.
std::uint64_t gradient_slots_of(const StoreOptions& options, std::uint32_t drive) {
  const std::uint64_t drives = options.directories.size();
  return options.spilled_gradient_slots / drives + (drive < options.spilled_gradient_slots % drives);
}

std::uint64_t needed_bytes_with(const StoreOptions& options, Undo undo) {
  const auto slots = SlotTable::plan(slot_options(options, undo));
  std::uint64_t bytes = 0;
  if (!slots.ok() ||
      __builtin_mul_overflow(options.spilled_gradient_slots, options.spilled_gradient_bytes, &bytes)) {
    return kTooMany;
  }
  for (std::uint32_t drive = 0; drive < options.directories.size(); ++drive) {
    if (__builtin_add_overflow(bytes, slots->container_bytes(drive), &bytes)) return kTooMany;
  }
  return bytes;
}

Status check_budget(const StoreOptions& options) {
  const std::uint64_t needed_bytes = Store::needed_bytes(options);
  if (needed_bytes == kTooMany) {
    return Status(Code::kResourceExhausted, "the store needs more bytes than 64 bits count");
  }
  if (options.nvme_budget_bytes == 0 || needed_bytes <= options.nvme_budget_bytes) return {};
  const std::uint64_t gradient_bytes = options.spilled_gradient_slots * options.spilled_gradient_bytes;
  std::string text = fmt::format(
      "nvme_budget_bytes = {} is too small, the smallest that would do is {}: {} for {} records with their "
      "slots on {} "
      "drives, {} for spilled gradients",
      options.nvme_budget_bytes, needed_bytes, needed_bytes - gradient_bytes, options.stored_chunks.size(),
      options.directories.size(), gradient_bytes);
  if (options.undo == Undo::kOn) {
    text += fmt::format("; {} without undo", needed_bytes_with(options, Undo::kOff));
  }
  return Status(Code::kResourceExhausted, text);
}

Status check(const StoreOptions& options) {
  if (options.directories.empty())
    return Status(Code::kInvalidArgument, "directories: a store needs at least one");
  if (options.rank >= options.world) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} is outside its world of {}", options.rank, options.world));
  }
  if (!std::has_single_bit(options.grid_bytes)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("grid_bytes = {}: not a power of two", options.grid_bytes));
  }
  for (const std::uint32_t chunk : options.stored_chunks) {
    if (chunk >= options.chunks.size() || options.chunks[chunk].record.bytes % options.grid_bytes != 0) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("stored_chunks: chunk {} is not one of the {} chunks laid out on a grid of {} bytes",
                      chunk, options.chunks.size(), options.grid_bytes));
    }
  }
  if (options.spilled_gradient_bytes % options.grid_bytes != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("spilled_gradient_bytes = {}: not a multiple of the grid of {} bytes",
                              options.spilled_gradient_bytes, options.grid_bytes));
  }
  return {};
}

Result<bool> same_directory(const io::Directory& a, const io::Directory& b) {
  struct stat first, second;
  if (::fstat(a.fd(), &first) != 0) return status_from_errno(errno, "looking at " + a.path());
  if (::fstat(b.fd(), &second) != 0) return status_from_errno(errno, "looking at " + b.path());
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

Result<std::vector<io::Directory>> open_all(std::span<const std::string> paths) {
  std::vector<io::Directory> directories;
  for (const std::string& path : paths) {
    auto directory = io::Directory::open(path, io::Access::kReadWrite);
    if (!directory.ok()) return directory.status();
    for (const io::Directory& earlier : directories) {
      const auto same = same_directory(earlier, *directory);
      if (!same.ok()) return same.status();
      if (*same) {
        return Status(Code::kInvalidArgument,
                      fmt::format("directories: {} and {} are the same", earlier.path(), directory->path()));
      }
    }
    directories.push_back(std::move(*directory));
  }
  return directories;
}

}  // namespace

Result<std::uint32_t> grid_of(std::span<const std::string> directories) {
  auto opened = open_all(directories);
  if (!opened.ok()) return opened.status();
  std::uint32_t grid_bytes = kGridMin;
  for (const io::Directory& directory : *opened) {
    const std::string name = fmt::format(".sluice-grid-{:016x}", random_u64());
    auto file = io::File::open(directory, name, {.creation = io::Creation::kExclusive});
    if (!file.ok()) return file.status();
    SLUICE_RETURN_IF_ERROR(directory.remove(name));
    SLUICE_RETURN_IF_ERROR(file->preallocate(std::uint64_t{1} << 16));
    grid_bytes = std::max({grid_bytes, file->grid().offset_bytes, file->grid().memory_bytes});
  }
  return grid_bytes;
}

std::uint64_t Store::needed_bytes(const StoreOptions& options) {
  return needed_bytes_with(options, options.undo);
}

Result<std::unique_ptr<Store>> Store::create(const StoreOptions& options) {
  SLUICE_RETURN_IF_ERROR(check(options));
  SLUICE_RETURN_IF_ERROR(check_budget(options));
  auto slots = SlotTable::plan(slot_options(options, options.undo));
  if (!slots.ok()) return slots.status();
  auto directories = open_all(options.directories);
  if (!directories.ok()) return directories.status();

  std::unique_ptr<Store> store(new Store(options, std::move(*slots)));
  for (io::Directory& directory : *directories) {
    SLUICE_RETURN_IF_ERROR(store->claim(store->drives_.emplace_back(std::move(directory)), options));
  }
  for (std::uint32_t index = 0; index < store->drives_.size(); ++index) {
    SLUICE_RETURN_IF_ERROR(store->make_files(index, options));
  }
  return store;
}

Store::Store(const StoreOptions& options, SlotTable slots)
    : slots_(std::move(slots)), owner_(Owner::make()), gradient_bytes_(options.spilled_gradient_bytes) {
  fill_random(volume_id_);
}

Status Store::claim(Drive& drive, const StoreOptions& options) const {
  const auto guard = NamesGuard::acquire(drive.root);
  if (!guard.ok()) return guard.status();
  SLUICE_RETURN_IF_ERROR(clear_existing(
      drive.root, {.rank = options.rank, .world = options.world, .existing = options.existing}));
  auto store = drive.root.subdirectory(store_name(options.store_id), io::Creation::kIfMissing);
  if (!store.ok()) return store.status();
  auto rank = store->subdirectory(rank_name(options.rank), io::Creation::kExclusive);
  if (!rank.ok()) {
    (void)drive.root.remove(store_name(options.store_id));  // unless other ranks are in it
    return rank.status();
  }
  drive.store = std::move(*store);
  drive.rank = std::move(*rank);
  auto lock = Lock::acquire(*drive.rank, io::Creation::kExclusive);
  if (!lock.ok()) return lock.status();
  drive.lock = std::move(*lock);
  return drive.lock->sign(*drive.rank, owner_);
}

Status Store::make_files(std::uint32_t index, const StoreOptions& options) {
  Drive& drive = drives_[index];
  auto data = io::File::open(*drive.rank, kDataName, {.creation = io::Creation::kExclusive});
  if (!data.ok()) return data.status();
  const std::uint64_t container_bytes = slots_.container_bytes(index);
  SLUICE_RETURN_IF_ERROR(data->preallocate(container_bytes));
  SLUICE_RETURN_IF_ERROR(check_grid(*data, options));
  const SuperblockBytes superblock = encode({.volume_id = volume_id_,
                                             .store_id = options.store_id,
                                             .rank = options.rank,
                                             .world = options.world,
                                             .drive = index,
                                             .drives = drive_count(),
                                             .keep_commits = 0,
                                             .undo = options.undo,
                                             .chunk_elements = options.chunk_elements,
                                             .grid_bytes = options.grid_bytes,
                                             .slots_offset = slots_offset(options),
                                             .container_bytes = container_bytes});
  SLUICE_RETURN_IF_ERROR(data->write_exact(0, superblock));
  drive.data = std::move(*data);
  reserved_bytes_ += container_bytes;

  const std::uint64_t gradient_slots = gradient_slots_of(options, index);
  if (gradient_slots == 0) return {};
  auto gradients = io::File::open(*drive.rank, kGradientsName, {.creation = io::Creation::kExclusive});
  if (!gradients.ok()) return gradients.status();
  SLUICE_RETURN_IF_ERROR(drive.rank->remove(kGradientsName));
  SLUICE_RETURN_IF_ERROR(gradients->preallocate(gradient_slots * options.spilled_gradient_bytes));
  SLUICE_RETURN_IF_ERROR(check_grid(*gradients, options));
  drive.gradients = std::move(*gradients);
  reserved_bytes_ += gradient_slots * options.spilled_gradient_bytes;
  return {};
}

Status Store::check_grid(const io::File& file, const StoreOptions& options) const {
  const std::uint32_t grid_bytes = file.grid().offset_bytes;
  if (options.grid_bytes % grid_bytes == 0) return {};
  return Status(Code::kFailedPrecondition,
                fmt::format("{}: direct I/O works on a grid of {} bytes, chunks are laid out on {}",
                            file.path(), grid_bytes, options.grid_bytes));
}

Store::~Store() {
  if (owner_.is_this_process()) (void)close();
}

io::Place Store::gradient_place(std::uint32_t slot) const {
  return {slot % drive_count(), slot / drive_count() * gradient_bytes_};
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
    if (!drive.rank) continue;
    drive.data.reset();
    drive.gradients.reset();
    const auto guard = NamesGuard::acquire(drive.root);
    const Status status = guard.ok() ? remove_rank(drive.root, *drive.store, *drive.rank) : guard.status();
    if (first.ok()) first = status;
    drive.lock.reset();
  }
  drives_.clear();
  return first;
}

}  // namespace sluice::store
