#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "formats/path.hpp"
#include "io/file.hpp"
#include "sluice/status.hpp"

namespace sluice::formats {

/// A file (mode 0600) that appears under its name whole and durable, or not at all: written as
/// "<name>.sluice-draft" beside it, which an unpublished object takes away with it. A draft that a killed
/// process left is written over; one that is being written is refused.
/// Memory: a buffer of kBufferBytes.
/// Threads: one at a time. In a forked child the destructor does nothing.
class DraftFile {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

  /// Errors: kAlreadyExists when the name is taken; kFailedPrecondition when another writer is at work on it.
  static Result<DraftFile> create(Place place);

  ~DraftFile();
  DraftFile(DraftFile&&) = default;

  /// Takes the room of the whole file. Errors: kNoSpace with the bytes needed and available.
  Status reserve(std::uint64_t bytes);

  /// Appends. Blocks: on the drive.
  Status write(std::span<const std::byte> bytes);

  /// Makes what was written durable, then gives it its name. Requires: the last call on the object.
  /// Errors: kAlreadyExists when the name was taken meanwhile. After one nothing is left.
  Status publish();

  /// The path that it will have.
  std::string path() const { return place_.path(); }

 private:
  explicit DraftFile(Place place);

  std::string draft_name() const;
  Status open();
  Status flush_buffer();
  Status rename();
  Status taken() const;

  Place place_;  // without a directory: moved from, or published
  pid_t process_;
  std::optional<io::File> file_;  // holds the draft's lock
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffered_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
};

}  // namespace sluice::formats
