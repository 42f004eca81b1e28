#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/safetensors_header.hpp"
#include "sluice/status.hpp"

namespace sluice::formats {

/// Of the place where our files' data starts.
inline constexpr std::uint64_t kDataAlignment = 4096;

/// A file's header and its first bytes: length, text, spaces up to the data on kDataAlignment.
struct Layout {
  Header header;
  std::string front;
};

/// Lays tensors out by descending size of dtype, then by name, so that each is aligned to its dtype.
/// Errors: kInvalidArgument for a name that is taken twice, reserved or not UTF-8, a size that does not fit,
/// too many dimensions, or a header above kHeaderBytesMax.
Result<Layout> lay_out(std::vector<TensorSpec> tensors, Metadata metadata);

/// No less than the file's size with these tensors of `data_bytes` in all, whose entries in the header take
/// `entries_bytes` (the sum of entry_bytes_max) beside the metadata.
std::uint64_t file_bytes_max(std::uint64_t data_bytes, std::uint64_t entries_bytes, const Metadata& metadata);
std::uint64_t entry_bytes_max(const TensorSpec& tensor);

}  // namespace sluice::formats
