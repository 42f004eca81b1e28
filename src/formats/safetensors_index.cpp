#include "formats/safetensors_index.hpp"

#include <fmt/format.h>

#include <utility>

#include "formats/json_text.hpp"
#include "formats/path.hpp"
#include "formats/tensors.hpp"

namespace sluice::formats {
namespace {

constexpr int kDepthMax = 16;

class IndexReader : public JsonEvents {
 public:
  ModelIndex index;
  bool has_weight_map = false;

  bool start_object(std::size_t) override {
    switch (at_) {
      case At::kStart:
        return go(At::kRoot);
      case At::kWeightMapStart:
        return go(At::kWeightMap);
      case At::kMetadataStart:
      case At::kMetadata:
        return deeper();
      default:
        return JsonEvents::start_object(0);
    }
  }

  bool key(string_t& key) override {
    switch (at_) {
      case At::kRoot:
        if (key == "weight_map") {
          if (std::exchange(has_weight_map, true)) return refuse("weight_map is given twice");
          return go(At::kWeightMapStart);
        }
        if (key == "metadata") {
          if (std::exchange(has_metadata_, true)) return refuse("metadata is given twice");
          return go(At::kMetadataStart);
        }
        return refuse("unknown field " + in_quotes(key));
      case At::kWeightMap:
        name_ = std::move(key);
        return go(At::kFile);
      case At::kMetadata:
        is_total_size_ = depth_ == 1 && key == "total_size";
        if (is_total_size_ && std::exchange(has_total_size_, true))
          return refuse("total_size is given twice");
        return true;
      default:
        return JsonEvents::key(key);
    }
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadata) return true;
    if (at_ != At::kFile) return JsonEvents::string(text);
    if (!is_file_name(text)) return refuse(fmt::format("{} is not the name of a file", in_quotes(text)));
    if (!index.weight_map.emplace(std::move(name_), std::move(text)).second) return refuse("given twice");
    return go(At::kWeightMap);
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (at_ != At::kMetadata) return JsonEvents::number_unsigned(number);
    if (is_total_size_ && depth_ == 1) index.total_size = number;
    return true;
  }

  bool null() override { return at_ == At::kMetadata || JsonEvents::null(); }
  bool boolean(bool value) override { return at_ == At::kMetadata || JsonEvents::boolean(value); }
  bool number_integer(number_integer_t number) override {
    return at_ == At::kMetadata || JsonEvents::number_integer(number);
  }
  bool number_float(number_float_t number, const string_t& text) override {
    return at_ == At::kMetadata || JsonEvents::number_float(number, text);
  }
  bool start_array(std::size_t) override {
    return at_ == At::kMetadata ? deeper() : JsonEvents::start_array(0);
  }
  bool end_array() override { return at_ == At::kMetadata ? shallower() : JsonEvents::end_array(); }

  bool end_object() override {
    switch (at_) {
      case At::kRoot:
        return go(At::kEnd);
      case At::kWeightMap:
        return go(At::kRoot);
      case At::kMetadata:
        return shallower();
      default:
        return JsonEvents::end_object();
    }
  }

 protected:
  std::string place() const override {
    switch (at_) {
      case At::kMetadataStart:
      case At::kMetadata:
        return "metadata";
      case At::kWeightMapStart:
      case At::kWeightMap:
        return "weight_map";
      case At::kFile:
        return "weight_map, tensor " + in_quotes(name_);
      default:
        return "index";
    }
  }

 private:
  enum class At { kStart, kRoot, kMetadataStart, kMetadata, kWeightMapStart, kWeightMap, kFile, kEnd };

  bool go(At at) {
    at_ = at;
    return true;
  }

  bool deeper() {
    at_ = At::kMetadata;
    if (++depth_ > kDepthMax) return refuse(fmt::format("nested more than {} deep", kDepthMax));
    return true;
  }

  bool shallower() { return --depth_ > 0 || go(At::kRoot); }

  At at_ = At::kStart;
  bool has_metadata_ = false;
  bool has_total_size_ = false;
  bool is_total_size_ = false;
  int depth_ = 0;  // inside metadata
  std::string name_;
};

}  // namespace

Result<ModelIndex> parse_index(std::string_view text, const std::string& path) {
  IndexReader reader;
  SLUICE_RETURN_IF_ERROR(reader.read(text, path));
  if (!reader.has_weight_map) return Status(Code::kDataLoss, path + ": index: has no weight_map");
  return std::move(reader.index);
}

Result<std::string> encode_index(const ModelIndex& index) {
  std::string text = "{\n";
  if (index.total_size)
    text += fmt::format("  \"metadata\": {{\n    \"total_size\": {}\n  }},\n", *index.total_size);
  text += "  \"weight_map\": {";
  std::string_view separator = "\n";
  for (const auto& [tensor, file] : index.weight_map) {
    const auto tensor_text = json_string(tensor), file_text = json_string(file);
    if (!tensor_text || !file_text)
      return Status(Code::kInvalidArgument, fmt::format("tensor {}: not UTF-8", in_quotes(tensor)));
    text += fmt::format("{}    {}: {}", separator, *tensor_text, *file_text);
    separator = ",\n";
  }
  text += index.weight_map.empty() ? "}\n}\n" : "\n  }\n}\n";
  return text;
}

}  // namespace sluice::formats
