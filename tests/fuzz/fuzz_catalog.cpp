// The tables that a store is made with, and the layout that follows from them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "store/catalog.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto catalog = store::decode_catalog(bytes);
  if (!catalog.ok()) return 0;
  if (!std::ranges::equal(store::encode(*catalog), bytes)) std::abort();
  store::Superblock superblock{.drives = 2, .chunk_elements = 16384, .grid_bytes = 4096};
  superblock.container_bytes = std::uint64_t{1} << 40;
  const auto layout = store::layout_of(*catalog, superblock);
  if (layout.ok() && layout->chunks().size() != catalog->chunks.size()) std::abort();
  (void)store::check_runs(*catalog, superblock);
  return 0;
}
