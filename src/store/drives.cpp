#include "store/drives.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/file.hpp"

namespace sluice::store {
namespace {

constexpr std::uint32_t kGridMin = 4096;

/// What two descriptors of one directory agree in.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const Identity&) const = default;
};

Result<Identity> identity_of(const io::Directory& directory) {
  struct stat found;
  if (::fstat(directory.fd(), &found) != 0) {
    return status_from_errno(errno, "looking at " + directory.path());
  }
  return Identity{found.st_dev, found.st_ino};
}

}  // namespace

Result<Drives> Drives::open(std::span<const std::string> paths, io::Access access) {
  if (paths.empty()) return Status(Code::kInvalidArgument, "directories: a store needs at least one");
  Drives drives({});
  std::vector<Identity> identities;
  for (const std::string& path : paths) {
    SLUICE_ASSIGN_OR_RETURN(io::Directory directory, io::Directory::open(path, access));
    SLUICE_ASSIGN_OR_RETURN(const Identity identity, identity_of(directory));
    const auto earlier = std::ranges::find(identities, identity);
    if (earlier != identities.end()) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("directories: {} and {} are the same",
                      drives.directories_[static_cast<std::size_t>(earlier - identities.begin())].path(),
                      path));
    }
    drives.guard_order_.push_back(identities.size());
    identities.push_back(identity);
    drives.directories_.push_back(std::move(directory));
  }
  std::ranges::sort(drives.guard_order_, {}, [&](std::size_t index) { return identities[index]; });
  return drives;
}

Result<std::vector<NamesGuard>> Drives::guard() const {
  std::vector<NamesGuard> guards;
  for (const std::size_t index : guard_order_) {
    SLUICE_ASSIGN_OR_RETURN(NamesGuard guard, NamesGuard::acquire(directories_[index]));
    guards.push_back(std::move(guard));
  }
  return guards;
}

Result<std::uint32_t> Drives::grid() const {
  std::uint32_t grid_bytes = kGridMin;
  for (const io::Directory& directory : directories_) {
    SLUICE_ASSIGN_OR_RETURN(io::File file, io::File::open_unnamed(directory));
    SLUICE_RETURN_IF_ERROR(file.preallocate(std::uint64_t{1} << 16));
    grid_bytes = std::max({grid_bytes, file.grid().offset_bytes, file.grid().memory_bytes});
  }
  return grid_bytes;
}

}  // namespace sluice::store
