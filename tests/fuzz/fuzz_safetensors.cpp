// An input is the number of data bytes behind the header (u64, little-endian) and the header's text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string_view>

#include "formats/safetensors_layout.hpp"

namespace {

using namespace sluice::formats;

void check(bool holds) {
  if (!holds) std::abort();
}

void check_invariants(const Header& header) {
  std::uint64_t covered = 0;
  for (const TensorInfo& tensor : header.tensors) {
    check(tensor.offset == covered && tensor_bytes(tensor) == tensor.bytes);
    check(header.find(tensor.name) == &tensor);
    covered += tensor.bytes;
  }
  check(covered == header.buffer_bytes);
}

/// What was read can be written, unless the file would be too long, and says the same then.
void check_round_trip(const Header& header) {
  const auto layout = lay_out({header.tensors.begin(), header.tensors.end()}, header.metadata);
  if (!layout.ok()) {
    check(header.buffer_bytes > std::uint64_t{1} << 62);
    return;
  }
  const std::string_view front = layout->front;
  const auto again =
      parse_header(front.substr(kHeaderLengthBytes), front.size() + header.buffer_bytes, "again");
  check(again.ok() && again->metadata == header.metadata && again->tensors.size() == header.tensors.size());
  for (const TensorInfo& tensor : header.tensors) {
    const TensorInfo* found = again->find(tensor.name);
    check(found != nullptr && found->dtype == tensor.dtype && found->shape == tensor.shape);
    check(found->offset % dtype_bytes(found->dtype) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kHeaderLengthBytes) return 0;
  const auto first =
      std::as_bytes(std::span<const std::uint8_t, kHeaderLengthBytes>(data, kHeaderLengthBytes));
  if (const auto length = parse_header_length(first, size, "f"); length.ok()) {
    check(*length <= size - kHeaderLengthBytes && *length <= kHeaderBytesMax);
  }
  std::uint64_t data_bytes = 0;
  for (std::size_t i = kHeaderLengthBytes; i-- > 0;) data_bytes = data_bytes << 8 | data[i];
  const std::string_view text(reinterpret_cast<const char*>(data) + kHeaderLengthBytes,
                              size - kHeaderLengthBytes);
  const std::uint64_t file_bytes =
      size + std::min(data_bytes, std::numeric_limits<std::uint64_t>::max() - size);
  const auto header = parse_header(text, file_bytes, "f");
  if (!header.ok()) {
    check(!header.status().message().empty());
    return 0;
  }
  check_invariants(*header);
  check_round_trip(*header);
  return 0;
}
