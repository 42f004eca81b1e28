#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "io/file.hpp"
#include "sluice/status.hpp"

namespace sluice::formats {

/// Whether `name` is one component of a path: no '/', no NUL, neither "." nor "..".
bool is_file_name(std::string_view name);

/// A directory and the name of a file in it, which need not exist.
struct Place {
  std::shared_ptr<const io::Directory> directory;
  std::string name;

  std::string path() const { return directory->path_of(name); }
  /// Whether there is something of this name, be it a link to nothing.
  bool taken() const;
};

/// Errors: kInvalidArgument when the path does not end in a name; those of io::Directory::open.
Result<Place> locate(const std::string& path, io::Access access);

/// Opens for buffered reading what `path` leads to, through links too: the user named it.
/// Errors: kNotFound; kFailedPrecondition for anything but a regular file. Blocks: never on a pipe.
Result<io::File> open_for_reading(const std::string& path);

/// The whole of a file of at most `bytes_max` bytes. Errors: kDataLoss when it is longer.
Result<std::string> read_text(const std::string& path, std::uint64_t bytes_max);

}  // namespace sluice::formats
