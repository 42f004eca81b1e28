#include "formats/safetensors_writer.hpp"

#include <fmt/format.h>

#include <utility>

namespace sluice::formats {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, std::vector<TensorSpec> tensors,
                                                    Metadata metadata) {
  SLUICE_ASSIGN_OR_RETURN(Place place, locate(path, io::Access::kReadWrite));
  return create(std::move(place), std::move(tensors), std::move(metadata));
}

Result<SafetensorsWriter> SafetensorsWriter::create(Place place, std::vector<TensorSpec> tensors,
                                                    Metadata metadata) {
  Result<Layout> layout = lay_out(std::move(tensors), std::move(metadata));
  if (!layout.ok()) return layout.status().with_context(place.path());
  SLUICE_ASSIGN_OR_RETURN(DraftFile draft, DraftFile::create(std::move(place)));
  SLUICE_RETURN_IF_ERROR(draft.reserve(layout->header.buffer_offset + layout->header.buffer_bytes));
  SLUICE_RETURN_IF_ERROR(draft.write(std::as_bytes(std::span(layout->front))));
  return SafetensorsWriter(std::move(draft), std::move(layout->header));
}

SafetensorsWriter::SafetensorsWriter(DraftFile draft, Header header)
    : draft_(std::move(draft)), header_(std::move(header)) {
  skip_empty();
}

void SafetensorsWriter::skip_empty() {
  while (!complete() && header_.tensors[next_].bytes == 0) ++next_;
}

Status SafetensorsWriter::append(std::string_view tensor, std::span<const std::byte> bytes) {
  SLUICE_RETURN_IF_ERROR(status_);
  if (bytes.empty()) return Status();
  const auto where = [&] { return fmt::format("{}: tensor {}", draft_.path(), in_quotes(tensor)); };
  if (complete()) return Status(Code::kFailedPrecondition, where() + ": every byte was given already");
  const TensorInfo& due = header_.tensors[next_];
  if (due.name != tensor) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("{}: byte {} of tensor {} is due", where(), given_bytes_, in_quotes(due.name)));
  }
  if (bytes.size() > due.bytes - given_bytes_) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {} bytes more, {} are missing of {}", where(),
                                                      bytes.size(), due.bytes - given_bytes_, due.bytes));
  }
  status_ = draft_.write(bytes);
  SLUICE_RETURN_IF_ERROR(status_);
  given_bytes_ += bytes.size();
  if (given_bytes_ == due.bytes) {
    given_bytes_ = 0;
    ++next_;
    skip_empty();
  }
  return Status();
}

Status SafetensorsWriter::finish() {
  SLUICE_RETURN_IF_ERROR(status_);
  if (!complete()) {
    const TensorInfo& due = header_.tensors[next_];
    return Status(Code::kFailedPrecondition,
                  fmt::format("{}: tensor {}: {} of {} bytes were given", draft_.path(), in_quotes(due.name),
                              given_bytes_, due.bytes));
  }
  const std::string path = draft_.path();
  status_ = draft_.publish();
  SLUICE_RETURN_IF_ERROR(status_);
  status_ = Status(Code::kFailedPrecondition, path + ": already finished");
  return Status();
}

}  // namespace sluice::formats
