#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/safetensors_header.hpp"
#include "io/file.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice::formats {

/// An open safetensors file.
/// Memory: the header's text while it is opened and what it says (see parse_header); reads go to their
/// target.
/// Threads: any.
class SafetensorsReader {
 public:
  /// Opens and checks the file that `path` leads to, through links too.
  /// Errors, each naming the path, and the tensor where there is one: kNotFound; kFailedPrecondition for
  /// anything but a regular file; kDataLoss for a truncated or malformed file; kUnimplemented for a dtype
  /// that DType does not have.
  static Result<SafetensorsReader> open(const std::string& path);

  /// In order of their place in the file.
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  /// Null when there is none of this name.
  const TensorInfo* find(std::string_view name) const { return header_.find(name); }
  const Metadata& metadata() const { return header_.metadata; }
  /// As it was opened.
  const std::string& path() const { return path_; }

  /// Reads elements of a tensor of this file, little-endian as they lie there.
  /// Requires: `target` of elements.count * dtype_bytes bytes.
  /// Errors: kInvalidArgument when the range or the target does not fit; kDataLoss when the file has shrunk.
  /// Blocks: on the drive.
  Status read(const TensorInfo& tensor, Range elements, std::span<std::byte> target) const;

 private:
  SafetensorsReader(std::string path, io::File file, Header header)
      : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {}

  std::string path_;
  io::File file_;
  Header header_;
};

}  // namespace sluice::formats
