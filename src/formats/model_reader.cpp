#include "formats/model_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "formats/path.hpp"
#include "formats/safetensors_index.hpp"

namespace sluice::formats {
namespace {

/// The file of the directory to open.
Result<std::string> choose(const std::string& directory) {
  const auto inside = [&](std::string_view name) { return fmt::format("{}/{}", directory, name); };
  std::error_code ignored;
  const bool has_file = std::filesystem::exists(inside(kModelName), ignored);
  const bool has_index = std::filesystem::exists(inside(kIndexName), ignored);
  if (has_file && has_index) {
    return Status(Code::kFailedPrecondition, fmt::format("{}: holds both {} and {}, name one of them",
                                                         directory, kModelName, kIndexName));
  }
  if (!has_file && !has_index) {
    return Status(Code::kNotFound,
                  fmt::format("{}: holds neither {} nor {}", directory, kModelName, kIndexName));
  }
  return inside(has_file ? kModelName : kIndexName);
}

/// Whether each file holds exactly the tensors that the index gives it.
Status check_agreement(const ModelIndex& index, const std::string& index_path,
                       const std::map<std::string, const SafetensorsReader*>& files) {
  for (const auto& [tensor, file] : index.weight_map) {
    if (files.at(file)->find(tensor) == nullptr) {
      return Status(Code::kDataLoss,
                    fmt::format("{}: tensor {}: not in {}, where {} has it", files.at(file)->path(),
                                in_quotes(tensor), in_quotes(file), index_path));
    }
  }
  for (const auto& [file, reader] : files) {
    for (const TensorInfo& tensor : reader->tensors()) {
      const auto named = index.weight_map.find(tensor.name);
      if (named == index.weight_map.end()) {
        return Status(Code::kDataLoss, fmt::format("{}: tensor {}: not in {}", reader->path(),
                                                   in_quotes(tensor.name), index_path));
      }
      if (named->second != file) {
        return Status(Code::kDataLoss, fmt::format("{}: tensor {}: also in {}", reader->path(),
                                                   in_quotes(tensor.name), in_quotes(named->second)));
      }
    }
  }
  return Status();
}

Result<std::vector<SafetensorsReader>> open_indexed(const std::string& index_path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, read_text(index_path, kIndexBytesMax));
  SLUICE_ASSIGN_OR_RETURN(const ModelIndex index, parse_index(text, index_path));
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.weight_map) names.insert(file);
  const std::filesystem::path directory = std::filesystem::path(index_path).parent_path();
  std::vector<SafetensorsReader> readers;
  readers.reserve(names.size());  // which keeps the pointers below in place
  std::map<std::string, const SafetensorsReader*> files;
  for (const std::string& name : names) {
    Result<SafetensorsReader> reader = SafetensorsReader::open((directory / name).string());
    if (!reader.ok()) return reader.status().with_context("named in " + index_path);
    readers.push_back(std::move(reader).value());
    files.emplace(name, &readers.back());
  }
  SLUICE_RETURN_IF_ERROR(check_agreement(index, index_path, files));
  return readers;
}

}  // namespace

Result<ModelReader> ModelReader::open(const std::string& path) {
  std::error_code ignored;
  std::string file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    SLUICE_ASSIGN_OR_RETURN(file, choose(path));
  }
  if (std::filesystem::path(file).extension() == ".json") {
    SLUICE_ASSIGN_OR_RETURN(std::vector<SafetensorsReader> readers, open_indexed(file));
    return ModelReader(std::move(readers));
  }
  SLUICE_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::open(file));
  std::vector<SafetensorsReader> readers;
  readers.push_back(std::move(reader));
  return ModelReader(std::move(readers));
}

ModelReader::ModelReader(std::vector<SafetensorsReader> files) : files_(std::move(files)) {
  for (const SafetensorsReader& file : files_) {
    for (const TensorInfo& info : file.tensors()) tensors_.push_back({&file, &info});
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.info->name < b.info->name; });
}

const ModelReader::Tensor* ModelReader::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const Tensor& tensor, std::string_view wanted) { return tensor.info->name < wanted; });
  return found != tensors_.end() && found->info->name == name ? &*found : nullptr;
}

}  // namespace sluice::formats
