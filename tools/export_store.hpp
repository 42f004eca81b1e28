#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "store/store_reader.hpp"

namespace sluice::tools {

/// What weights become.
enum class ExportDType : std::uint8_t {
  kStored,  ///< each parameter's weight plane, bit for bit
  kBF16,    ///< a bf16 plane bit for bit, an fp32 one rounded to nearest even; frozen parameters as stored
  kF32,     ///< the masters; frozen parameters as stored
};

enum class ExportParts : std::uint8_t {
  kWeights,
  kAll,  ///< in a second file all else that a store is made of again: see StateDescription
};

struct ExportOptions {
  /// A file whose name ends in ".safetensors", or a directory, made if it is missing, for a model in one file or several.
  std::string target;
  ExportDType dtype = ExportDType::kStored;
  ExportParts parts = ExportParts::kWeights;
  std::uint64_t file_bytes_max = ~std::uint64_t{0};  ///< of one of several files of weights
};

struct ExportReport {
  std::string weights;    ///< path of the file, or of the directory
  std::string optimizer;  ///< path; empty without
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;  ///< of all tensors
};

/// Room for one piece of a tensor on its way, beside what the reader and the writers hold.
inline constexpr std::uint64_t kExportBytes = 8 << 20;

/// Writes a commit's weights, and if asked for its optimizer state, into safetensors files. An alias is written once,
/// under its parameter's name, and is listed in the metadata: "alias.<name>" is that name.
/// `on_progress` hears the bytes written so far; an error from it ends the work. After a failure nothing is left.
/// Errors: kInvalidArgument for a target that is no path of a file; kAlreadyExists for a file that is there; kNoSpace;
/// kDataLoss for what the format cannot hold, such as a name that is not UTF-8; those of StoreReader::read.
/// Memory: kExportBytes, store::kReaderBytes, the writers' buffers and tables.
Result<ExportReport> export_store(store::StoreReader& reader, const ExportOptions& options,
                                  const std::function<Status(std::uint64_t bytes_written)>& on_progress);

/// Whether the target names a file.
bool names_file(const std::string& target);

}  // namespace sluice::tools
