#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/draft_file.hpp"
#include "formats/safetensors_layout.hpp"
#include "sluice/status.hpp"

namespace sluice::formats {

/// Writes one safetensors file, which appears when finish() succeeds; until then, and after a failure, there
/// is nothing of that name.
/// Memory: the header's text and what it says, and a buffer of DraftFile::kBufferBytes.
/// Threads: one at a time.
class SafetensorsWriter {
 public:
  /// Takes the room of the whole file at once.
  /// Errors: those of lay_out, locate and DraftFile::create; kNoSpace with the bytes needed and available.
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<TensorSpec> tensors,
                                          Metadata metadata);
  static Result<SafetensorsWriter> create(Place place, std::vector<TensorSpec> tensors, Metadata metadata);

  /// The declared tensors in the order in which their data comes: by descending size of dtype, then by name.
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }

  /// The next bytes of `tensor`, little-endian and row-major, in as many pieces as it pleases.
  /// Errors: kFailedPrecondition when another tensor's bytes are due; kInvalidArgument for more than it has;
  /// nothing is written then. kNoSpace, kIoError: later calls return it too.
  Status append(std::string_view tensor, std::span<const std::byte> bytes);

  /// Whether every declared byte was given.
  bool complete() const { return next_ == header_.tensors.size(); }

  /// Makes the file durable and gives it its name; every later call is refused.
  /// Errors: kFailedPrecondition when bytes are missing, naming the tensor: they may still be given. After
  /// any other there is nothing.
  Status finish();

 private:
  SafetensorsWriter(DraftFile draft, Header header);
  void skip_empty();

  DraftFile draft_;
  Header header_;
  std::size_t next_ = 0;           // of header_.tensors: the one whose bytes are due
  std::uint64_t given_bytes_ = 0;  // of that tensor
  Status status_;
};

}  // namespace sluice::formats
