#include "formats/model_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "formats/model_reader.hpp"
#include "formats/safetensors_index.hpp"

namespace sluice::formats {
namespace {

/// Splits `tensors`, in their order, into files of at most `bytes_max` where no tensor is larger.
Result<std::vector<std::vector<TensorSpec>>> split(std::vector<TensorSpec> tensors, const Metadata& metadata,
                                                   std::uint64_t bytes_max) {
  std::vector<std::vector<TensorSpec>> files(1);
  std::uint64_t data_bytes = 0;
  std::uint64_t entries_bytes = 0;
  for (TensorSpec& tensor : tensors) {
    // A size beyond 64 bits is refused, with its name, where the file is laid out.
    const std::uint64_t bytes = tensor_bytes(tensor).value_or(0);
    const std::uint64_t entry_bytes = entry_bytes_max(tensor);
    std::uint64_t with_it = 0;
    const bool fits = !__builtin_add_overflow(data_bytes, bytes, &with_it) &&
                      file_bytes_max(with_it, entries_bytes + entry_bytes, metadata) <= bytes_max;
    if (!fits && !files.back().empty()) {
      files.emplace_back();
      data_bytes = entries_bytes = 0;
    }
    data_bytes += bytes;
    entries_bytes += entry_bytes;
    files.back().push_back(std::move(tensor));
  }
  return files;
}

}  // namespace

ModelWriter::ModelWriter(std::shared_ptr<const io::Directory> directory)
    : directory_(std::move(directory)), process_(::getpid()) {}

Result<ModelWriter> ModelWriter::create(const std::string& directory, std::vector<TensorSpec> tensors,
                                        Metadata metadata, const ModelWriterOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(io::Directory opened, io::Directory::open(directory, io::Access::kReadWrite));
  ModelWriter writer(std::make_shared<const io::Directory>(std::move(opened)));
  writer.metadata_ = std::move(metadata);
  const Status laid_out = writer.lay_out_files(std::move(tensors), options);
  if (!laid_out.ok()) return laid_out.with_context(directory);
  SLUICE_RETURN_IF_ERROR(writer.check_taken());
  SLUICE_RETURN_IF_ERROR(writer.check_room());
  SLUICE_RETURN_IF_ERROR(writer.begin_file());
  return writer;
}

Status ModelWriter::lay_out_files(std::vector<TensorSpec> tensors, const ModelWriterOptions& options) {
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      return Status(Code::kInvalidArgument, fmt::format("tensor {}: declared twice", in_quotes(tensor.name)));
  }
  SLUICE_ASSIGN_OR_RETURN(auto parts, split(std::move(tensors), metadata_, options.max_file_bytes));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Layout layout, lay_out(std::move(parts[i]), metadata_));
    const Header& header = layout.header;
    if (__builtin_add_overflow(total_bytes_, header.buffer_offset + header.buffer_bytes, &total_bytes_))
      return Status(Code::kInvalidArgument, "the tensors have more bytes than 64 bits count");
    data_bytes_ += header.buffer_bytes;
    const std::string name = parts.size() == 1
                                 ? std::string(kModelName)
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    files_.push_back({name, {header.tensors.begin(), header.tensors.end()}});
    tensors_.insert(tensors_.end(), header.tensors.begin(), header.tensors.end());
  }
  return Status();
}

Status ModelWriter::check_taken() const {
  const auto check = [&](std::string_view name) {
    const Place place = place_of(name);
    if (!place.taken()) return Status();
    return Status(Code::kAlreadyExists, place.path() + ": exists and is not replaced");
  };
  SLUICE_RETURN_IF_ERROR(check(kModelName));
  SLUICE_RETURN_IF_ERROR(check(kIndexName));
  for (const File& file : files_) SLUICE_RETURN_IF_ERROR(check(file.name));
  return Status();
}

Status ModelWriter::check_room() const {
  SLUICE_ASSIGN_OR_RETURN(const io::Space space, directory_->space());
  if (total_bytes_ <= space.available_bytes) return Status();
  return Status(Code::kNoSpace,
                fmt::format("{}: the model takes {} bytes in {} files, {} are available", directory_->path(),
                            total_bytes_, files_.size(), space.available_bytes));
}

ModelWriter::~ModelWriter() {
  if (directory_ == nullptr || process_ != ::getpid()) return;
  writer_.reset();
  for (std::size_t i = 0; i < published_; ++i)
    (void)directory_->remove(files_[i].name);  // nobody is left to be told
}

Place ModelWriter::place_of(std::string_view name) const { return {directory_, std::string(name)}; }

Status ModelWriter::begin_file() {
  const File& file = files_[published_];
  SLUICE_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::create(place_of(file.name), file.tensors, metadata_));
  writer_ = std::make_unique<SafetensorsWriter>(std::move(writer));
  return Status();
}

Status ModelWriter::next_files() {
  while (writer_->complete() && published_ + 1 < files_.size()) {
    SLUICE_RETURN_IF_ERROR(writer_->finish());
    ++published_;
    SLUICE_RETURN_IF_ERROR(begin_file());
  }
  return Status();
}

Status ModelWriter::append(std::string_view tensor, std::span<const std::byte> bytes) {
  SLUICE_RETURN_IF_ERROR(status_);
  if (bytes.empty()) return Status();
  status_ = next_files();
  SLUICE_RETURN_IF_ERROR(status_);
  return writer_->append(tensor, bytes);
}

Status ModelWriter::finish() {
  SLUICE_RETURN_IF_ERROR(status_);
  status_ = next_files();
  SLUICE_RETURN_IF_ERROR(status_);
  SLUICE_RETURN_IF_ERROR(writer_->finish());
  ++published_;
  if (files_.size() > 1) {
    status_ = write_index();
    SLUICE_RETURN_IF_ERROR(status_);
  }
  status_ = Status(Code::kFailedPrecondition, directory_->path() + ": already finished");
  directory_.reset();
  return Status();
}

Status ModelWriter::write_index() {
  ModelIndex index;
  index.total_size = data_bytes_;
  for (const File& file : files_) {
    for (const TensorSpec& tensor : file.tensors) index.weight_map.emplace(tensor.name, file.name);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string text, encode_index(index));
  SLUICE_ASSIGN_OR_RETURN(DraftFile draft, DraftFile::create(place_of(kIndexName)));
  SLUICE_RETURN_IF_ERROR(draft.write(std::as_bytes(std::span(text))));
  return draft.publish();
}

}  // namespace sluice::formats
