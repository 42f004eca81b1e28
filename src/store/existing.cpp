#include "store/existing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include "io/file.hpp"
#include "store/lock.hpp"
#include "store/names.hpp"
#include "store/superblock.hpp"

namespace sluice::store {
namespace {

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

/// What a rank's container says; nothing where its making was cut short before the superblock.
Result<std::optional<Superblock>> read_superblock(const io::Directory& rank) {
  auto file = io::File::open(rank, kDataName, {.caching = io::Caching::kBuffered});
  if (file.status().code() == Code::kNotFound) return std::optional<Superblock>();
  if (!file.ok()) return file.status();
  const auto file_bytes = file->size();
  if (!file_bytes.ok()) return file_bytes.status();
  SuperblockBytes storage = {};
  const auto bytes = std::span(storage).first(std::min<std::uint64_t>(*file_bytes, kSuperblockBytes));
  SLUICE_RETURN_IF_ERROR(file->read_exact(0, bytes));
  if (is_blank(bytes)) return std::optional<Superblock>();
  auto superblock = decode(bytes);
  if (!superblock.ok()) return superblock.status().with_context(file->path());
  return std::optional(*superblock);
}

Status check_only_own_files(const io::Directory& rank) {
  const auto names = rank.names();
  if (!names.ok()) return names.status();
  const auto foreign = std::find_if_not(names->begin(), names->end(), is_own_file);
  if (foreign == names->end()) return {};
  return Status(
      Code::kAlreadyExists,
      fmt::format("{}: holds \"{}\", which is no file of a store; left untouched", rank.path(), *foreign));
}

Status clear_rank(const io::Directory& directory, const io::Directory& store, const io::Directory& rank,
                  OnExisting existing) {
  auto lock = Lock::acquire(rank, io::Creation::kNever);
  if (!lock.ok() && lock.status().code() != Code::kNotFound) return lock.status();
  const auto superblock = read_superblock(rank);
  if (!superblock.ok()) return superblock.status();
  if (*superblock) {
    const Superblock& found = **superblock;
    if (found.keep_commits > 0) {
      return Status(
          Code::kAlreadyExists,
          fmt::format(
              "{}: a store that keeps {} commits (rank {} of {}); left untouched, this version does not "
              "open it: name another directory or remove it",
              rank.path(), found.keep_commits, found.rank, found.world));
    }
    if (existing == OnExisting::kRefuse) {
      return Status(Code::kAlreadyExists, fmt::format("{}: a scratch store of an earlier run (rank {} of {})",
                                                      rank.path(), found.rank, found.world));
    }
  }
  SLUICE_RETURN_IF_ERROR(check_only_own_files(rank));
  return remove_rank(directory, store, rank);
}

Status clear_store(const io::Directory& directory, const io::Directory& store,
                   const ExistingOptions& options) {
  const auto names = store.names();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const auto rank = parse_rank_name(name);
    if (!rank || *rank % options.world != options.rank) continue;
    auto rank_directory = store.subdirectory(name, io::Creation::kNever);
    if (!rank_directory.ok()) return rank_directory.status();
    SLUICE_RETURN_IF_ERROR(clear_rank(directory, store, *rank_directory, options.existing));
  }
  return remove_if_empty(directory, name_of(store));
}

}  // namespace

Status clear_existing(const io::Directory& directory, const ExistingOptions& options) {
  const auto names = directory.names();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!is_store_name(name)) continue;
    auto store = directory.subdirectory(name, io::Creation::kNever);
    if (store.status().code() == Code::kFailedPrecondition) continue;
    if (!store.ok()) return store.status();
    SLUICE_RETURN_IF_ERROR(clear_store(directory, *store, options));
  }
  return {};
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
