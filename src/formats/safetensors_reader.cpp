#include "formats/safetensors_reader.hpp"

#include <fmt/format.h>

#include <array>

#include "formats/path.hpp"

namespace sluice::formats {

Result<SafetensorsReader> SafetensorsReader::open(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(io::File file, open_for_reading(path));
  SLUICE_ASSIGN_OR_RETURN(const std::uint64_t file_bytes, file.size());
  if (file_bytes < kHeaderLengthBytes) {
    return Status(Code::kDataLoss,
                  fmt::format("{}: truncated, {} bytes are no safetensors file", path, file_bytes));
  }
  std::array<std::byte, kHeaderLengthBytes> first;
  SLUICE_RETURN_IF_ERROR(file.read_exact(0, first));
  SLUICE_ASSIGN_OR_RETURN(const std::uint64_t length, parse_header_length(first, file_bytes, path));
  std::string text(length, '\0');
  SLUICE_RETURN_IF_ERROR(file.read_exact(kHeaderLengthBytes, std::as_writable_bytes(std::span(text))));
  SLUICE_ASSIGN_OR_RETURN(Header header, parse_header(text, file_bytes, path));
  return SafetensorsReader(path, std::move(file), std::move(header));
}

Status SafetensorsReader::read(const TensorInfo& tensor, Range elements, std::span<std::byte> target) const {
  const auto where = [&] { return fmt::format("{}: tensor {}", path(), in_quotes(tensor.name)); };
  if (elements.first > tensor.elements() || elements.count > tensor.elements() - elements.first) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: elements [{}, {} + {}) of {}", where(), elements.first, elements.first,
                              elements.count, tensor.elements()));
  }
  const std::uint64_t element_bytes = dtype_bytes(tensor.dtype);
  if (target.size() != elements.count * element_bytes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: {} elements are {} bytes, the target has {}", where(), elements.count,
                              elements.count * element_bytes, target.size()));
  }
  const std::uint64_t offset = header_.buffer_offset + tensor.offset + elements.first * element_bytes;
  const Status status = file_.read_exact(offset, target);
  return status.ok() ? status : status.with_context(where());
}

}  // namespace sluice::formats
