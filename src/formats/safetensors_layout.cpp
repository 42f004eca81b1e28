#include "formats/safetensors_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "formats/json_text.hpp"

namespace sluice::formats {
namespace {

constexpr auto kFileBytesMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

std::uint64_t round_up(std::uint64_t value, std::uint64_t grid) { return (value + grid - 1) / grid * grid; }

Status refused(const TensorSpec& tensor, const std::string& why) {
  return Status(Code::kInvalidArgument, fmt::format("tensor {}: {}", in_quotes(tensor.name), why));
}

/// Six bytes for one: "\u0000" is the longest that JSON makes of a character.
std::uint64_t json_bytes_max(std::string_view text) { return 2 + 6 * text.size(); }

}  // namespace

Result<Layout> lay_out(std::vector<TensorSpec> tensors, Metadata metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const auto a_bytes = dtype_bytes(a.dtype), b_bytes = dtype_bytes(b.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
  Layout layout;
  Header& header = layout.header;
  std::string json = "{";
  if (!metadata.empty()) {
    json += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : metadata) {
      const auto key_text = json_string(key), value_text = json_string(value);
      if (!key_text || !value_text)
        return Status(Code::kInvalidArgument, fmt::format("metadata {}: not UTF-8", in_quotes(key)));
      json += *key_text + ":" + *value_text + ",";
    }
    json.back() = '}';
    json += ',';
  }
  for (TensorSpec& tensor : tensors) {
    const auto name = json_string(tensor.name);
    if (!name) return refused(tensor, "the name is not UTF-8");
    if (tensor.name == kMetadataKey) return refused(tensor, "the name is reserved by the format");
    if (tensor.shape.size() > kRankMax)
      return refused(tensor,
                     fmt::format("{} dimensions, at most {} are accepted", tensor.shape.size(), kRankMax));
    const std::optional<std::uint64_t> bytes = tensor_bytes(tensor);
    if (!bytes || *bytes > kFileBytesMax - header.buffer_bytes)
      return refused(tensor,
                     fmt::format("{} [{}] makes the file longer than {} bytes", dtype_name(tensor.dtype),
                                 fmt::join(tensor.shape, ", "), kFileBytesMax));
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", *name,
                        dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), header.buffer_bytes,
                        header.buffer_bytes + *bytes);
    TensorInfo info;
    static_cast<TensorSpec&>(info) = std::move(tensor);
    info.offset = header.buffer_bytes;
    info.bytes = *bytes;
    header.buffer_bytes += *bytes;
    header.tensors.push_back(std::move(info));
  }
  if (json.size() > 1) json.pop_back();
  json += '}';
  if (const std::string* twice = header.index_names())
    return Status(Code::kInvalidArgument, fmt::format("tensor {}: declared twice", in_quotes(*twice)));

  header.buffer_offset = round_up(kHeaderLengthBytes + json.size(), kDataAlignment);
  const std::uint64_t length = header.buffer_offset - kHeaderLengthBytes;
  if (length > kHeaderBytesMax || header.buffer_bytes > kFileBytesMax - header.buffer_offset) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} tensors of {} bytes with a header of {} bytes: at most {} bytes of header and {} of "
                    "file are accepted",
                    header.tensors.size(), header.buffer_bytes, length, kHeaderBytesMax, kFileBytesMax));
  }
  for (std::size_t i = 0; i < kHeaderLengthBytes; ++i)
    layout.front += static_cast<char>(length >> (8 * i) & 0xff);
  layout.front += json;
  layout.front.resize(header.buffer_offset, ' ');
  header.metadata = std::move(metadata);
  return layout;
}

std::uint64_t entry_bytes_max(const TensorSpec& tensor) {
  constexpr std::uint64_t kDigitsMax = 20;
  constexpr std::string_view kFixed = R"(:{"dtype":"BF16","shape":[],"data_offsets":[,]},)";
  return json_bytes_max(tensor.name) + kFixed.size() + (kDigitsMax + 1) * tensor.shape.size() +
         2 * kDigitsMax;
}

std::uint64_t file_bytes_max(std::uint64_t data_bytes, std::uint64_t entries_bytes,
                             const Metadata& metadata) {
  std::uint64_t text_bytes = entries_bytes + 2 * kMetadataKey.size();
  for (const auto& [key, value] : metadata) text_bytes += json_bytes_max(key) + json_bytes_max(value) + 2;
  return round_up(kHeaderLengthBytes + text_bytes, kDataAlignment) + data_bytes;
}

}  // namespace sluice::formats
