#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/safetensors_reader.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice::formats {

/// The names that other programs look for in a model's directory.
inline constexpr std::string_view kModelName = "model.safetensors";
inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

/// A model in one safetensors file, or in several with an index.
/// Memory: that of a SafetensorsReader for each file; while it is opened, the index. One descriptor a file.
/// Threads: any.
class ModelReader {
 public:
  /// Opens `path`: a safetensors file; an index (a name that ends in ".json"); or a directory with kModelName
  /// or kIndexName in it, which then must not both be there.
  /// Errors, each naming the file and the tensor: those of SafetensorsReader::open; kDataLoss where index and
  /// files disagree: a file without a tensor that it should hold, a tensor in two files or in none that the
  /// index names.
  static Result<ModelReader> open(const std::string& path);

  struct Tensor {
    const SafetensorsReader* file;
    const TensorInfo* info;
  };

  /// In byte order of their names. Lifetime: that of the reader; moving the reader keeps it.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Null when there is none of this name.
  const Tensor* find(std::string_view name) const;
  const std::vector<SafetensorsReader>& files() const { return files_; }

  /// As SafetensorsReader::read.
  static Status read(const Tensor& tensor, Range elements, std::span<std::byte> target) {
    return tensor.file->read(*tensor.info, elements, target);
  }

 private:
  explicit ModelReader(std::vector<SafetensorsReader> files);

  std::vector<SafetensorsReader> files_;
  std::vector<Tensor> tensors_;
};

}  // namespace sluice::formats
