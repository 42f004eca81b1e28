#include "store_damage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tools/store_view.hpp"

namespace sluice::tools {

PlaneByte find_plane_byte(const std::string& directory, std::uint64_t commit, const std::string& parameter,
                          std::uint64_t element, std::size_t plane) {
  const auto views = look_at_stores({directory});
  EXPECT_TRUE(views.ok()) << views.status().to_string();
  const store::ExistingRank& rank = views->front().ranks.front();
  const auto held = std::ranges::find_if(
      rank.commits, [&](const store::HeldCommit& one) { return one.record.number == commit; });
  EXPECT_NE(held, rank.commits.end());
  const std::vector<store::ParameterSpec> specs = store::specs_of(rank.catalog);
  const auto layout = store::ElementLayout::build(
      specs, {.chunk_elements = rank.superblock->chunk_elements, .grid_bytes = rank.superblock->grid_bytes});
  EXPECT_TRUE(layout.ok());
  const auto index = static_cast<std::uint32_t>(
      std::ranges::find(specs, parameter, &store::ParameterSpec::name) - specs.begin());
  for (const store::Piece& piece : layout->pieces_of(index)) {
    const store::Segment& segment = layout->segments()[piece.segment];
    if (element < segment.first || element >= segment.first + segment.count) continue;
    const store::ChunkLayout& chunk = layout->chunks()[piece.chunk];
    const store::PlaneFormat& format = layout->classes()[chunk.class_index].planes[plane];
    return {rank.drives[rank.catalog.chunks[piece.chunk].drive].data->path(),
            held->record.chunks[piece.chunk].place.offset + chunk.record.plane_offsets[plane] +
                (segment.offset + element - segment.first) / format.elements_per_value *
                    dtype_bytes(format.dtype)};
  }
  ADD_FAILURE() << "no element " << element << " of " << parameter;
  return {};
}

void flip(const PlaneByte& byte) {
  std::fstream file(byte.path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte.offset));
  const int value = file.get();
  file.seekp(static_cast<std::streamoff>(byte.offset));
  file.put(static_cast<char>(value ^ 1));
  ASSERT_TRUE(file.good()) << byte.path;
}

}  // namespace sluice::tools
