#include "formats/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "formats/json_text.hpp"

namespace sluice::formats {
namespace {

class HeaderReader : public JsonEvents {
 public:
  std::vector<TensorInfo> tensors;
  Metadata metadata;

  bool start_object(std::size_t) override {
    if (at_ == At::kStart) return go(At::kRoot);
    if (at_ != At::kEntry) return JsonEvents::start_object(0);
    if (name_ != kMetadataKey) {
      tensor_ = {};
      has_dtype_ = has_shape_ = has_offsets_ = false;
      return go(At::kTensor);
    }
    if (std::exchange(has_metadata_, true)) return refuse("given twice");
    return go(At::kMetadata);
  }

  bool key(string_t& key) override {
    switch (at_) {
      case At::kRoot:
        name_ = std::move(key);
        return go(At::kEntry);
      case At::kMetadata:
        metadata_key_ = std::move(key);
        return go(At::kMetadataValue);
      case At::kTensor:
        if (key == "dtype") return field(has_dtype_, key, At::kDType);
        if (key == "shape") return field(has_shape_, key, At::kShapeStart);
        if (key == "data_offsets") return field(has_offsets_, key, At::kOffsetsStart);
        return refuse("unknown field " + in_quotes(key));
      default:
        return JsonEvents::key(key);
    }
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadataValue) {
      if (!metadata.emplace(std::move(metadata_key_), std::move(text)).second)
        return refuse("the key is given twice");
      return go(At::kMetadata);
    }
    if (at_ != At::kDType) return JsonEvents::string(text);
    const std::optional<DType> dtype = dtype_of(text);
    if (!dtype)
      return refuse(Code::kUnimplemented, fmt::format("dtype {} is not supported", in_quotes(text)));
    tensor_.dtype = *dtype;
    return go(At::kTensor);
  }

  bool start_array(std::size_t) override {
    if (at_ == At::kShapeStart) return go(At::kShape);
    if (at_ == At::kOffsetsStart) return go(At::kOffsets);
    return JsonEvents::start_array(0);
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (at_ == At::kShape) {
      if (tensor_.shape.size() == kRankMax)
        return refuse(Code::kUnimplemented, fmt::format("more than {} dimensions", kRankMax));
      tensor_.shape.push_back(number);
      return true;
    }
    if (at_ != At::kOffsets) return JsonEvents::number_unsigned(number);
    if (offsets_ == 2) return refuse("data_offsets of more than two numbers");
    (offsets_++ == 0 ? tensor_.offset : end_) = number;
    return true;
  }

  bool end_array() override {
    if (at_ == At::kOffsets && offsets_ != 2)
      return refuse(fmt::format("data_offsets of {} numbers", offsets_));
    if (at_ == At::kShape || at_ == At::kOffsets) return go(At::kTensor);
    return JsonEvents::end_array();
  }

  bool end_object() override {
    switch (at_) {
      case At::kRoot:
        return go(At::kEnd);
      case At::kMetadata:
        return go(At::kRoot);
      case At::kTensor:
        return end_tensor();
      default:
        return JsonEvents::end_object();
    }
  }

 protected:
  std::string place() const override {
    switch (at_) {
      case At::kStart:
      case At::kRoot:
      case At::kEnd:
        return "header";
      case At::kMetadata:
        return std::string(kMetadataKey);
      case At::kMetadataValue:
        return fmt::format("{}, key {}", kMetadataKey, in_quotes(metadata_key_));
      case At::kEntry:
        if (name_ == kMetadataKey) return name_;
        [[fallthrough]];
      default:
        return "tensor " + in_quotes(name_);
    }
  }

 private:
  enum class At {
    kStart,
    kRoot,
    kEntry,  // behind a key of the root
    kMetadata,
    kMetadataValue,
    kTensor,
    kDType,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
    kEnd,
  };

  bool go(At at) {
    at_ = at;
    return true;
  }

  bool field(bool& seen, const std::string& key, At at) {
    if (std::exchange(seen, true)) return refuse(fmt::format("{} is given twice", key));
    offsets_ = at == At::kOffsetsStart ? 0 : offsets_;
    return go(at);
  }

  bool end_tensor() {
    for (const auto& [seen, key] : {std::pair(has_dtype_, "dtype"), std::pair(has_shape_, "shape"),
                                    std::pair(has_offsets_, "data_offsets")}) {
      if (!seen) return refuse(fmt::format("has no {}", key));
    }
    const std::optional<std::uint64_t> bytes = tensor_bytes(tensor_);
    const auto shape = [&] {
      return fmt::format("{} [{}]", dtype_name(tensor_.dtype), fmt::join(tensor_.shape, ", "));
    };
    if (!bytes) return refuse(fmt::format("{} has more bytes than 64 bits count", shape()));
    if (end_ < tensor_.offset || end_ - tensor_.offset != *bytes) {
      return refuse(
          fmt::format("{} has {} bytes, data_offsets are [{}, {}]", shape(), *bytes, tensor_.offset, end_));
    }
    tensor_.bytes = *bytes;
    tensor_.name = std::move(name_);
    tensors.push_back(std::move(tensor_));
    return go(At::kRoot);
  }

  At at_ = At::kStart;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int offsets_ = 0;
  std::uint64_t end_ = 0;
  std::string name_;
  std::string metadata_key_;
  TensorInfo tensor_;
};

/// Whether the tensors, in order of offset, cover the buffer.
Status check_cover(const Header& header, const std::string& path) {
  std::uint64_t covered = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.offset != covered) {
      return Status(
          Code::kDataLoss,
          fmt::format("{}: tensor {}: begins at byte {} of the data, the tensor before ends at {}: {}", path,
                      in_quotes(tensor.name), tensor.offset, covered,
                      tensor.offset < covered ? "an overlap" : "a hole"));
    }
    covered += tensor.bytes;
  }
  if (covered == header.buffer_bytes) return Status();
  const std::string last = header.tensors.empty()
                               ? "no tensors"
                               : "tensor " + in_quotes(header.tensors.back().name) + ", the last,";
  return Status(Code::kDataLoss,
                fmt::format("{}: {} {} at byte {} of the data, the file holds {} bytes of data: {}", path,
                            last, header.tensors.empty() ? "end" : "ends", covered, header.buffer_bytes,
                            covered > header.buffer_bytes ? "truncated" : "bytes that belong to none"));
}

}  // namespace

const TensorInfo* Header::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [&](std::size_t index, std::string_view wanted) { return tensors[index].name < wanted; });
  return found != by_name.end() && tensors[*found].name == name ? &tensors[*found] : nullptr;
}

const std::string* Header::index_names() {
  by_name.resize(tensors.size());
  std::iota(by_name.begin(), by_name.end(), std::size_t{0});
  const auto name = [&](std::size_t index) -> const std::string& { return tensors[index].name; };
  std::sort(by_name.begin(), by_name.end(), [&](std::size_t a, std::size_t b) { return name(a) < name(b); });
  const auto twice = std::adjacent_find(by_name.begin(), by_name.end(),
                                        [&](std::size_t a, std::size_t b) { return name(a) == name(b); });
  return twice == by_name.end() ? nullptr : &name(*twice);
}

Result<std::uint64_t> parse_header_length(std::span<const std::byte, kHeaderLengthBytes> bytes,
                                          std::uint64_t file_bytes, const std::string& path) {
  std::uint64_t length = 0;
  for (std::size_t i = kHeaderLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  if (length > kHeaderBytesMax) {
    return Status(Code::kDataLoss,
                  fmt::format("{}: not a safetensors file, its header would be {} bytes, at most {} "
                              "are accepted",
                              path, length, kHeaderBytesMax));
  }
  if (file_bytes < kHeaderLengthBytes || length > file_bytes - kHeaderLengthBytes) {
    return Status(Code::kDataLoss,
                  fmt::format("{}: truncated, the header is {} bytes behind the first {}, the file {}", path,
                              length, kHeaderLengthBytes, file_bytes));
  }
  return length;
}

Result<Header> parse_header(std::string_view text, std::uint64_t file_bytes, const std::string& path) {
  if (file_bytes < kHeaderLengthBytes || text.size() > file_bytes - kHeaderLengthBytes)
    return Status(Code::kDataLoss, fmt::format("{}: truncated inside the header", path));
  if (text.empty() || text.front() != '{')
    return Status(Code::kDataLoss, fmt::format("{}: the header does not begin with {{", path));
  if (text.substr(0, text.find_last_not_of(' ') + 1).back() != '}')
    return Status(Code::kDataLoss, fmt::format("{}: the header does not end with }} and spaces", path));

  HeaderReader reader;
  SLUICE_RETURN_IF_ERROR(reader.read(text, path));
  Header header;
  header.tensors = std::move(reader.tensors);
  header.metadata = std::move(reader.metadata);
  header.buffer_offset = kHeaderLengthBytes + text.size();
  header.buffer_bytes = file_bytes - header.buffer_offset;
  // Empty tensors come before the one that begins where they lie.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  // Before the cover, which two entries of one name would break too.
  if (const std::string* twice = header.index_names()) {
    return Status(Code::kDataLoss, fmt::format("{}: tensor {}: given twice", path, in_quotes(*twice)));
  }
  SLUICE_RETURN_IF_ERROR(check_cover(header, path));
  return header;
}

}  // namespace sluice::formats
