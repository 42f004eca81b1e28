// Writes the corpora of the store's decoders, for when a format changes:
//   make_corpus tests/fuzz/corpus
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "store/catalog.hpp"
#include "store/commit_record.hpp"
#include "store/superblock.hpp"

namespace {

using namespace sluice;

constexpr std::uint64_t kSlotsOffset = 1 << 16;

store::Superblock scratch() {
  store::Superblock superblock{
      .store_id = 0xabc, .world = 2, .drives = 2, .chunk_elements = 16384, .grid_bytes = 4096};
  superblock.slots_offset = kSlotsOffset;
  superblock.container_bytes = std::uint64_t{1} << 30;
  return superblock;
}

store::Superblock committed() {
  store::Superblock superblock = scratch();
  superblock.keep_commits = 1;
  superblock.generation = 3;
  superblock.parent_store_id = 0xab9;
  superblock.catalog_offset = 4096;
  superblock.catalog_bytes = 700;
  superblock.catalog_checksum = 0x1234;
  superblock.places_offset = 8192;
  superblock.place_bytes = 4096;
  superblock.place_count = 2;
  superblock.committed = true;
  return superblock;
}

/// With the number of the first version; the harness makes its checksum right.
store::SuperblockBytes version_1() {
  store::Superblock superblock = scratch();
  superblock.generation = 0;
  store::SuperblockBytes bytes = store::encode(superblock);
  bytes[8] = std::byte{1};
  return bytes;
}

/// Chunks of three classes on two drives.
store::Catalog catalog() {
  store::Catalog catalog;
  catalog.parameters = {
      {.name = "embedding", .shape = {100, 200}},
      {.name = "scale", .shape = {}, .group = 1, .policy = Policy::kFp32, .rank = 1, .world = 2},
      {.name = "bias", .shape = {600}, .group = 1, .policy = Policy::kFp32, .rank = 1, .world = 2},
      {.name = "frozen", .shape = {3, 5}, .group = 2, .policy = Policy::kFrozen, .frozen_dtype = DType::kU8}};
  catalog.aliases = {{"head", 0}};
  catalog.chunks = {{0, 16384, 0}, {0, 3840, 1}, {1, 256, 0}, {2, 256, 1}};
  catalog.runs = {{0, 0, kSlotsOffset, 196608, 3},
                  {1, 0, kSlotsOffset + 3 * 196608, 12288, 3},
                  {0, 1, kSlotsOffset, 49152, 3},
                  {2, 1, kSlotsOffset + 3 * 49152, 4096, 1}};
  return catalog;
}

/// A chunk of every policy, of rules that keep one moment and both.
store::Catalog every_policy() {
  store::Catalog catalog;
  std::uint64_t offset = kSlotsOffset;
  for (std::uint32_t at = 0; at < policies().size(); ++at) {
    catalog.parameters.push_back({.name = std::string(policy_name(policies()[at])),
                                  .shape = {300},
                                  .group = at,
                                  .policy = policies()[at],
                                  .optimizer = static_cast<std::uint8_t>(at % 2 == 0 ? 0 : 3)});
    catalog.chunks.push_back({at, 512, 0});
    catalog.runs.push_back({at, 0, offset, 24576, 1});
    offset += 24576;
  }
  return catalog;
}

store::CommitRecord record() {
  store::CommitRecord record;
  record.store_id = 0xabc;
  record.world = 2;
  record.number = 7;
  record.steps = 100;
  record.seed = 42;
  record.groups = {{"main", AdamW{}}, {"", AdamW{.lr = 0}}};
  record.step_counts = {100, 99, 0};
  record.chunks = {{{0, kSlotsOffset}, {1, 2, 3, 4}}, {{1, kSlotsOffset}, {5}}};
  record.user_bytes.assign(10, std::byte{0x55});
  return record;
}

/// Of as many checksums as a record can have.
store::CommitRecord of_six_planes() {
  store::CommitRecord six = record();
  six.groups[1].optimizer = Lion{};
  six.chunks[1].checksums = {7, 8, 9, 10, 11, 12};
  return six;
}

std::vector<std::byte> encoded(const store::CommitRecord& record, std::size_t place_bytes) {
  std::vector<std::byte> bytes(place_bytes);
  const std::uint64_t record_bytes = store::encode(record, bytes);
  if (place_bytes > 1024) bytes.resize(record_bytes);
  return bytes;
}

bool write(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return file.good();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: make_corpus DIRECTORY\n");
    return 2;
  }
  const std::filesystem::path corpus = arguments[1];
  store::CommitRecord bare;
  bare.number = 1;
  const bool written = write(corpus / "superblock/scratch", store::encode(scratch())) &&
                       write(corpus / "superblock/committed", store::encode(committed())) &&
                       write(corpus / "superblock/version_1", version_1()) &&
                       write(corpus / "catalog/empty", store::encode(store::Catalog{})) &&
                       write(corpus / "catalog/three_classes", store::encode(catalog())) &&
                       write(corpus / "catalog/every_policy", store::encode(every_policy())) &&
                       write(corpus / "commit_record/whole", encoded(record(), 4096)) &&
                       write(corpus / "commit_record/six_planes", encoded(of_six_planes(), 4096)) &&
                       write(corpus / "commit_record/in_a_place", encoded(record(), 1024)) &&
                       write(corpus / "commit_record/bare", encoded(bare, 4096)) &&
                       write(corpus / "commit_record/erased", std::vector<std::byte>(store::kErasedBytes));
  if (!written) std::fprintf(stderr, "%s: not all was written\n", corpus.c_str());
  return written ? 0 : 1;
}
