#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensors.hpp"
#include "sluice/status.hpp"

namespace sluice::formats {

inline constexpr std::uint64_t kHeaderLengthBytes = 8;
inline constexpr std::uint64_t kHeaderBytesMax = 100'000'000;
/// The entry of the header that is no tensor.
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// What a safetensors file holds.
/// Invariant: tensors lie in order of offset and cover [0, buffer_bytes) without holes or overlaps; no two
/// have the same name; the file is buffer_offset + buffer_bytes long.
/// Source: the format description in the README of the safetensors library, and its limits.
struct Header {
  std::vector<TensorInfo> tensors;
  std::vector<std::size_t> by_name;  ///< indices of tensors, in byte order of their names
  Metadata metadata;
  std::uint64_t buffer_offset = 0;
  std::uint64_t buffer_bytes = 0;

  /// Null when there is none of this name.
  const TensorInfo* find(std::string_view name) const;

  /// Makes by_name from tensors. Returns: a name that two of them have; null when there is none.
  const std::string* index_names();
};

/// The length of the header's text, from a file's first bytes.
/// Errors: kDataLoss, naming `path`, when it is above kHeaderBytesMax or the file is too short for it.
Result<std::uint64_t> parse_header_length(std::span<const std::byte, kHeaderLengthBytes> bytes,
                                          std::uint64_t file_bytes, const std::string& path);

/// The header whose text this is, in a file of `file_bytes` bytes, everything checked.
/// Errors, each naming `path` and the tensor: kDataLoss for what breaks the format; kUnimplemented for a
/// dtype that DType does not have or more than kRankMax dimensions.
/// Cost: n log n of the tensors; memory at most some ten times the text (metadata of empty strings; tensors
/// some four times).
Result<Header> parse_header(std::string_view text, std::uint64_t file_bytes, const std::string& path);

}  // namespace sluice::formats
