#include "store/existing.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <utility>

#include "store/names.hpp"
#include "store/rank_tables.hpp"

namespace sluice::store {
namespace {

constexpr std::size_t kNamedMax = 8;  // of what a message lists

Status ignore_missing(const Status& status) { return status.code() == Code::kNotFound ? Status() : status; }

/// The last component of a directory that was opened inside another.
std::string name_of(const io::Directory& directory) {
  return directory.path().substr(directory.path().rfind('/') + 1);
}

Status remove_if_empty(const io::Directory& directory, const std::string& name) {
  const Status status = directory.remove(name);
  const bool holds_something = status.native() == ENOTEMPTY || status.native() == EEXIST;
  return holds_something ? Status() : ignore_missing(status);
}

/// What a container says; nothing where its making was cut short before the superblock.
Result<std::optional<Superblock>> read_superblock(const io::File& data) {
  SLUICE_ASSIGN_OR_RETURN(const std::uint64_t file_bytes, data.size());
  SuperblockBytes storage = {};
  const auto bytes = std::span(storage).first(std::min<std::uint64_t>(file_bytes, kSuperblockBytes));
  SLUICE_RETURN_IF_ERROR(data.read_exact(0, bytes));
  if (is_blank(bytes)) return std::optional<Superblock>();
  const auto superblock = decode(bytes);
  if (!superblock.ok()) return superblock.status().with_context(data.path());
  // Slots of a scratch store are read by nobody, the others' were there before the superblock was written.
  if (superblock->keep_commits > 0 && file_bytes < superblock->container_bytes) {
    return Status(Code::kDataLoss,
                  fmt::format("{}: truncated, {} bytes are there, the store was made with {}", data.path(),
                              file_bytes, superblock->container_bytes));
  }
  return std::optional(*superblock);
}

/// Finds, claims and reads what is in one drive's directory.
class Search {
 public:
  Search(const FindOptions& options, const Owner& owner) : options_(options), owner_(owner) {}

  using Key = std::pair<std::uint64_t, std::uint32_t>;  // store id, rank

  Status look_into(const io::Directory& directory) {
    SLUICE_ASSIGN_OR_RETURN(io::Directory reopened, directory.reopen());
    const auto root = std::make_shared<const io::Directory>(std::move(reopened));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, root->names());
    for (const std::string& name : names) {
      const auto store_id = parse_store_name(name);
      if (!store_id) continue;
      auto store = root->subdirectory(name, io::Creation::kNever);
      if (!store.ok()) {
        SLUICE_RETURN_IF_ERROR(pass_over(*root, name, store.status()));
        continue;
      }
      SLUICE_RETURN_IF_ERROR(
          look_into_store(root, *store_id, std::make_shared<const io::Directory>(std::move(*store))));
    }
    return {};
  }

  std::map<Key, std::vector<ExistingDrive>> found;

 private:
  /// Gone since its name was read, which nothing prevents where nothing is locked.
  bool is_absent(const Status& status) const {
    return options_.claim == Claim::kLook && status.code() == Code::kNotFound;
  }

  /// ok for what has a store's name and is none: a file, or a directory that another user keeps to himself.
  Status pass_over(const io::Directory& root, const std::string& name, const Status& opened) const {
    if (is_absent(opened)) return {};
    struct stat entry;
    if (opened.code() != Code::kFailedPrecondition ||
        ::fstatat(root.fd(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) != 0) {
      return opened;
    }
    if (S_ISLNK(entry.st_mode)) {
      return Status(
          Code::kFailedPrecondition,
          fmt::format("{}: a link in place of a store, which is not followed; name the directory that "
                      "the store lies in",
                      root.path_of(name)));
    }
    return S_ISDIR(entry.st_mode) && entry.st_uid == ::geteuid() ? opened : Status();
  }

  Status look_into_store(const std::shared_ptr<const io::Directory>& root, std::uint64_t store_id,
                         const std::shared_ptr<const io::Directory>& store) {
    const auto names = store->names();
    if (is_absent(names.status())) return {};
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      const auto rank = parse_rank_name(name);
      if (!rank || *rank % options_.world != options_.rank) continue;
      auto directory = store->subdirectory(name, io::Creation::kNever);
      if (is_absent(directory.status())) continue;
      if (!directory.ok()) return directory.status();
      ExistingDrive drive{.root = root, .store = store, .rank = std::move(*directory)};
      if (options_.claim == Claim::kLock) SLUICE_RETURN_IF_ERROR(claim(drive));
      SLUICE_RETURN_IF_ERROR(open_data(drive));
      found[{store_id, *rank}].push_back(std::move(drive));
    }
    if (names->empty() && options_.claim == Claim::kLock) return remove_if_empty(*root, name_of(*store));
    return {};
  }

  Status claim(ExistingDrive& drive) const {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, drive.rank.names());
    const auto foreign = std::ranges::find_if_not(names, is_own_file);
    if (foreign != names.end()) {
      return Status(Code::kAlreadyExists, fmt::format("{}: holds \"{}\", which is no file of a store; left "
                                                      "untouched",
                                                      drive.rank.path(), *foreign));
    }
    // A making that was cut short before the lock has no data. With data it was removed by somebody else, and
    // what there is to keep is kept by a new one.
    const bool holds_data = std::ranges::find(names, kDataName) != names.end();
    auto lock = Lock::acquire(drive.rank, holds_data ? io::Creation::kIfMissing : io::Creation::kNever);
    SLUICE_RETURN_IF_ERROR(ignore_missing(lock.status()));
    if (!lock.ok()) return {};
    SLUICE_RETURN_IF_ERROR(lock->sign(owner_));
    drive.lock = std::move(*lock);
    return {};
  }

  Status open_data(ExistingDrive& drive) const {
    const auto access = options_.claim == Claim::kLock ? io::Access::kReadWrite : io::Access::kReadOnly;
    auto data = io::File::open(drive.rank, kDataName, {.access = access});
    if (data.status().code() == Code::kNotFound) return {};
    if (!data.ok()) return data.status();
    SLUICE_ASSIGN_OR_RETURN(drive.superblock, read_superblock(*data));
    drive.data = std::move(*data);
    return {};
  }

  const FindOptions options_;
  const Owner owner_;
};

std::string name_of(const VolumeId& volume) {
  std::string text;
  for (const std::byte byte : volume) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

/// What all drives of a rank agree in.
Superblock common_part(Superblock superblock) {
  superblock.drive = 0;
  superblock.container_bytes = 0;
  superblock.committed = false;
  return superblock;
}

Status check_drive(const ExistingRank& rank, const ExistingDrive& drive, const ExistingDrive& first,
                   const ExistingDrive& previous) {
  const Superblock& superblock = *drive.superblock;
  const auto foreign = [&](std::string why) {
    return Status(Code::kDataLoss, fmt::format("{}: {}", drive.data->path(), why));
  };
  if (superblock.store_id != rank.store_id || superblock.rank != rank.rank) {
    return foreign(fmt::format("says that it is rank {} of store {:016x}, not the one that it lies in",
                               superblock.rank, superblock.store_id));
  }
  if (superblock.volume_id != first.superblock->volume_id) {
    return foreign(fmt::format("drive {} of volume {}; {} is of volume {}", superblock.drive,
                               name_of(superblock.volume_id), first.data->path(),
                               name_of(first.superblock->volume_id)));
  }
  if (&drive != &previous && superblock.drive == previous.superblock->drive) {
    return foreign(fmt::format("drive {} of volume {} a second time, the other one is {}", superblock.drive,
                               name_of(superblock.volume_id), previous.data->path()));
  }
  if (common_part(superblock) != common_part(*first.superblock)) {
    return foreign(fmt::format("its superblock contradicts that of {}, another drive of volume {}",
                               first.data->path(), name_of(superblock.volume_id)));
  }
  return {};
}

/// Puts the drives in order and finds out which are missing.
Status put_together(ExistingRank& rank) {
  std::ranges::stable_sort(rank.drives, [](const ExistingDrive& a, const ExistingDrive& b) {
    if (!a.superblock || !b.superblock) return a.superblock.has_value() > b.superblock.has_value();
    return a.superblock->drive < b.superblock->drive;
  });
  const std::span<ExistingDrive> drives = drives_of(rank);
  if (drives.empty()) {
    rank.missing = "its making was cut short";
    return {};
  }
  rank.superblock = drives[0].superblock;
  for (std::size_t i = 0; i < drives.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(check_drive(rank, drives[i], drives[0], drives[i == 0 ? 0 : i - 1]));
    rank.superblock->committed |= drives[i].superblock->committed;
  }
  const std::uint32_t count = rank.superblock->drives;
  rank.whole = drives.size() == count;
  if (rank.whole) return {};
  std::vector<std::uint32_t> missing;
  for (std::uint32_t index = 0, at = 0; index < count && missing.size() < kNamedMax; ++index) {
    if (at < drives.size() && drives[at].superblock->drive == index) {
      ++at;
    } else {
      missing.push_back(index);
    }
  }
  const std::size_t others = count - drives.size() - missing.size();
  rank.missing = fmt::format("drive {}{} of {} (volume {}) is in none of the directories",
                             fmt::join(missing, ", "), others > 0 ? fmt::format(" and {} more", others) : "",
                             count, name_of(rank.superblock->volume_id));
  for (const ExistingDrive& drive : std::span(rank.drives).subspan(drives.size())) {
    rank.missing += fmt::format("; {} was never made whole", drive.rank.path());
  }
  return {};
}

}  // namespace

Result<std::vector<ExistingRank>> find_existing(std::span<const io::Directory> directories,
                                                const FindOptions& options, const Owner& owner) {
  Search search(options, owner);
  for (const io::Directory& directory : directories) SLUICE_RETURN_IF_ERROR(search.look_into(directory));
  std::vector<ExistingRank> ranks;
  for (auto& [key, drives] : search.found) {
    ExistingRank rank{.store_id = key.first, .rank = key.second, .drives = std::move(drives)};
    SLUICE_RETURN_IF_ERROR(put_together(rank));
    if (rank.superblock && rank.superblock->keep_commits > 0) SLUICE_RETURN_IF_ERROR(read_tables(rank));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

RankSummary summarize(const ExistingRank& rank) {
  RankSummary summary{.store_id = rank.store_id, .rank = rank.rank};
  if (!rank.superblock) return summary;
  summary.generation = rank.superblock->generation;
  summary.parent_store_id = rank.superblock->parent_store_id;
  summary.world = rank.superblock->world;
  summary.keep_commits = rank.superblock->keep_commits;
  summary.committed = rank.superblock->committed;
  summary.whole = rank.whole;
  summary.drives = rank.superblock->drives;
  for (const ExistingDrive& drive : rank.drives) {
    if (drive.superblock && drive.superblock->drive == summary.missing_drive) ++summary.missing_drive;
  }
  const std::size_t held = std::min(rank.commits.size(), summary.commits.size());
  summary.held = static_cast<std::uint32_t>(held);
  for (std::size_t i = 0; i < held; ++i) {
    const CommitRecord& record = rank.commits[rank.commits.size() - held + i].record;
    summary.commits[i] = record.number;
    summary.steps[i] = record.steps;
  }
  return summary;
}

Status remove_existing(ExistingRank rank) {
  Status first;
  for (ExistingDrive& drive : rank.drives) {
    drive.data.reset();
    const Status status = remove_rank(*drive.root, *drive.store, drive.rank);
    if (first.ok()) first = status;
  }
  return first;
}

Status remove_rank(const io::Directory& directory, const io::Directory& store, const io::Directory& rank) {
  // The lock's name goes last: a removal that is cut short leaves what the next run recognises and replaces.
  for (const char* name : {kGradientsName, kOwnerDraftName, kDataName, kOwnerName, kLockName}) {
    SLUICE_RETURN_IF_ERROR(ignore_missing(rank.remove(name)));
  }
  SLUICE_RETURN_IF_ERROR(ignore_missing(store.remove(name_of(rank))));
  return remove_if_empty(directory, name_of(store));
}

}  // namespace sluice::store
