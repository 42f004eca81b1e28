#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "store/catalog.hpp"
#include "store/layout.hpp"

namespace sluice::store {

struct CatalogOptions {
  LayoutOptions layout = {.chunk_elements = 16384, .grid_bytes = 4096};
  std::uint32_t drives = 1;
  std::uint64_t slots_offset = 0;
  std::uint64_t slots_per_chunk = 1;
};

/// The catalog of a store of these parameters: chunks take turns on the drives, one run of slots a class and
/// drive.
inline Catalog catalog_of(std::vector<StoredParameter> parameters, std::vector<StoredAlias> aliases,
                          const CatalogOptions& options) {
  Catalog catalog{std::move(parameters), std::move(aliases), {}, {}};
  const ElementLayout layout = ElementLayout::build(specs_of(catalog), options.layout).value();
  std::map<std::pair<std::uint32_t, std::uint32_t>, SlotRun> runs;
  for (std::uint32_t index = 0; index < layout.chunks().size(); ++index) {
    const ChunkLayout& chunk = layout.chunks()[index];
    const std::uint32_t drive = index % options.drives;
    catalog.chunks.push_back({chunk.class_index, chunk.elements, drive});
    SlotRun& run = runs[{chunk.class_index, drive}];
    run.class_index = chunk.class_index;
    run.drive = drive;
    run.slot_bytes = std::max(run.slot_bytes, chunk.record.bytes);
    run.slots += options.slots_per_chunk;
  }
  std::vector<std::uint64_t> ends(options.drives, options.slots_offset);
  for (auto& [key, run] : runs) {
    run.first_offset = ends[run.drive];
    ends[run.drive] += run.slots * run.slot_bytes;
    catalog.runs.push_back(run);
  }
  return catalog;
}

}  // namespace sluice::store
