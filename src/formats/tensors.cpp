#include "formats/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::formats {
namespace {

constexpr DType kDTypes[] = {DType::kBool, DType::kU8,   DType::kI8,  DType::kU16, DType::kI16,
                             DType::kF16,  DType::kBF16, DType::kU32, DType::kI32, DType::kF32,
                             DType::kU64,  DType::kI64,  DType::kF64};
constexpr std::size_t kQuotedNameBytesMax = 200;

}  // namespace

std::optional<std::uint64_t> tensor_bytes(const TensorSpec& tensor) {
  // Before multiplying, where the other extents may be beyond 64 bits.
  if (std::ranges::find(tensor.shape, std::uint64_t{0}) != tensor.shape.end()) return 0;
  std::uint64_t bytes = dtype_bytes(tensor.dtype);
  for (const std::uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::string in_quotes(std::string_view name) {
  std::string text = "\"";
  for (const char byte : name.substr(0, kQuotedNameBytesMax)) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x20 || code == 0x7f || code == '"' || code == '\\') {
      text += fmt::format("\\x{:02x}", code);
    } else {
      text += byte;
    }
  }
  // A cut may fall into a character: its first bytes go too.
  if (name.size() > kQuotedNameBytesMax) {
    while (text.size() > 1 && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
    text += "…";
  }
  return text + "\"";
}

}  // namespace sluice::formats
