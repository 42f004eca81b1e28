// An input is the text of an index.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/path.hpp"
#include "formats/safetensors_index.hpp"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::formats;
  const auto index = parse_index({reinterpret_cast<const char*>(data), size}, "i");
  if (!index.ok()) {
    check(!index.status().message().empty());
    return 0;
  }
  for (const auto& [tensor, file] : index->weight_map) check(is_file_name(file));
  const auto text = encode_index(*index);
  check(text.ok());
  const auto again = parse_index(*text, "again");
  check(again.ok() && *again == *index);
  return 0;
}
