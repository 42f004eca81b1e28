#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "sluice/status.hpp"

namespace sluice::formats {

inline constexpr std::uint64_t kIndexBytesMax = 100'000'000;

/// What "model.safetensors.index.json" says of a model in several files.
struct ModelIndex {
  std::map<std::string, std::string> weight_map;  ///< tensor: name of a file in the same directory
  std::optional<std::uint64_t> total_size;        ///< bytes of all tensors, as the writer counted them

  friend bool operator==(const ModelIndex&, const ModelIndex&) = default;
};

/// Metadata other than total_size may be anything, nested up to 16 deep, and is passed over; so is a
/// total_size that is no integer.
/// Errors, naming `path`: kDataLoss for what is not such an index, a tensor or field given twice, a file name
/// that is not one component of a path.
Result<ModelIndex> parse_index(std::string_view text, const std::string& path);

/// Errors: kInvalidArgument for a name that is not UTF-8.
Result<std::string> encode_index(const ModelIndex& index);

}  // namespace sluice::formats
