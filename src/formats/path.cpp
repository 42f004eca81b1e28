#include "formats/path.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <utility>

#include "formats/tensors.hpp"

namespace sluice::formats {

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

bool Place::taken() const {
  return ::faccessat(directory->fd(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

Result<Place> locate(const std::string& path, io::Access access) {
  const std::size_t slash = path.rfind('/');
  std::string name = slash == path.npos ? path : path.substr(slash + 1);
  if (!is_file_name(name) || path.find('\0') != path.npos) {
    return Status(Code::kInvalidArgument, fmt::format("{}: not the path of a file", in_quotes(path)));
  }
  const std::string parent = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  SLUICE_ASSIGN_OR_RETURN(io::Directory directory, io::Directory::open(parent, access));
  return Place{std::make_shared<const io::Directory>(std::move(directory)), std::move(name)};
}

Result<io::File> open_for_reading(const std::string& path) {
  if (path.empty() || path.find('\0') != path.npos) {
    return Status(Code::kInvalidArgument, fmt::format("{}: not the path of a file", in_quotes(path)));
  }
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) return status_from_errno(error.value(), "opening " + path);
  // Asked before opening, which would wait for the other end of a pipe.
  const bool regular = std::filesystem::is_regular_file(real, error);
  if (error) return status_from_errno(error.value(), "opening " + path);
  if (!regular) return Status(Code::kFailedPrecondition, path + ": not a regular file");
  SLUICE_ASSIGN_OR_RETURN(const Place place, locate(real.string(), io::Access::kReadOnly));
  return io::File::open(*place.directory, place.name,
                        {.access = io::Access::kReadOnly, .caching = io::Caching::kBuffered});
}

Result<std::string> read_text(const std::string& path, std::uint64_t bytes_max) {
  SLUICE_ASSIGN_OR_RETURN(const io::File file, open_for_reading(path));
  SLUICE_ASSIGN_OR_RETURN(const std::uint64_t bytes, file.size());
  if (bytes > bytes_max) {
    return Status(Code::kDataLoss,
                  fmt::format("{}: {} bytes, at most {} are accepted", path, bytes, bytes_max));
  }
  std::string text(bytes, '\0');
  SLUICE_RETURN_IF_ERROR(file.read_exact(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace sluice::formats
