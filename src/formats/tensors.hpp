#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/types.hpp"

namespace sluice::formats {

/// What a file says of itself: free text by free names.
using Metadata = std::map<std::string, std::string>;

/// More dimensions than any tensor library offers; bounds what one shape can make a reader hold.
inline constexpr std::size_t kRankMax = 64;

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  ///< row-major; empty: a scalar
};

/// A tensor and its bytes, [offset, offset + bytes) of the file's byte buffer.
/// Invariant: bytes == elements() * dtype_bytes(dtype).
struct TensorInfo : TensorSpec {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  std::uint64_t elements() const { return bytes / dtype_bytes(dtype); }
};

/// Bytes of a tensor's values, none where an extent is 0; nothing when they do not fit 64 bits.
std::optional<std::uint64_t> tensor_bytes(const TensorSpec& tensor);

/// "BF16" …; nothing for a name that DType does not have.
std::optional<DType> dtype_of(std::string_view name);

/// A name from a file, fit for a message: in quotes, cut where it is long, without control characters.
std::string in_quotes(std::string_view name);

}  // namespace sluice::formats
