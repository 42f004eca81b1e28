#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors_writer.hpp"
#include "sluice/status.hpp"

namespace sluice::formats {

struct ModelWriterOptions {
  /// Of one file with its header; a larger tensor has a file for itself, beyond it.
  std::uint64_t max_file_bytes = 5'000'000'000;
};

/// Writes a model into a directory: as kModelName where that takes at most max_file_bytes, else as
/// model-00001-of-00003.safetensors … and, last, kIndexName, without which the files are no model. A failed
/// or abandoned writer leaves nothing; one whose process is killed may leave whole files, but no index.
/// Memory: what the headers of all files say, the header's text of one, and a buffer of
/// DraftFile::kBufferBytes.
/// Threads: one at a time. In a forked child the destructor does nothing.
class ModelWriter {
 public:
  /// Tensors are put into files as they are declared.
  /// Requires: that the directory exists.
  /// Errors: those of lay_out; kAlreadyExists when the directory holds a model or one of the files to write;
  /// kNoSpace with the bytes needed and available.
  static Result<ModelWriter> create(const std::string& directory, std::vector<TensorSpec> tensors,
                                    Metadata metadata, const ModelWriterOptions& options);

  ~ModelWriter();
  ModelWriter(ModelWriter&&) = default;

  /// The declared tensors in the order in which their data comes.
  const std::vector<TensorSpec>& tensors() const { return tensors_; }

  /// As SafetensorsWriter::append. Blocks: on the drive; for its flush where a file ends.
  Status append(std::string_view tensor, std::span<const std::byte> bytes);

  /// Makes everything durable and gives it its names; every later call is refused.
  /// Errors: kFailedPrecondition when bytes are missing, naming the tensor: they may still be given.
  Status finish();

 private:
  struct File {
    std::string name;
    std::vector<TensorSpec> tensors;
  };

  explicit ModelWriter(std::shared_ptr<const io::Directory> directory);
  Status lay_out_files(std::vector<TensorSpec> tensors, const ModelWriterOptions& options);
  Status check_room() const;
  Status check_taken() const;
  Status begin_file();
  Status next_files();
  Status write_index();
  Place place_of(std::string_view name) const;

  std::shared_ptr<const io::Directory> directory_;  // null: moved from, or finished
  pid_t process_;
  Metadata metadata_;
  std::vector<File> files_;
  std::vector<TensorSpec> tensors_;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;  // of all files
  std::size_t published_ = 0;      // of files_, from the first
  std::unique_ptr<SafetensorsWriter> writer_;
  Status status_;
};

}  // namespace sluice::formats
