#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "store/catalog.hpp"
#include "store/commit_record.hpp"
#include "store/existing.hpp"
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
Catalog catalog_of(std::vector<StoredParameter> parameters, std::vector<StoredAlias> aliases,
                   const CatalogOptions& options);

struct WorldOptions {
  LayoutOptions layout = {.chunk_elements = 16384, .grid_bytes = 4096};
  std::uint32_t world = 1;
  std::uint32_t drives = 1;
  std::uint64_t store_id = 0xabc;
  std::uint64_t commit = 5;
  std::uint64_t seed = 1;  ///< of all values and of where records lie
};

/// A store of several ranks with one commit, written byte by byte as FORMAT.md says, and the plain arrays
/// that it holds.
class StoredWorld {
 public:
  /// What a rank registers.
  struct Model {
    std::vector<StoredParameter> parameters =
        {};  ///< each with the rank and world of its group's communicator
    std::vector<StoredAlias> aliases = {};
    std::uint64_t values = 0;  ///< ranks of equal numbers hold parts of the same values
  };

  /// Makes the drives' directories drive-0, drive-1 … in `directory`.
  StoredWorld(std::string directory, WorldOptions options);

  /// Writes rank number ranks() and goes on to the next.
  void add_rank(const Model& model);
  /// All ranks, all registering this, all with one communicator.
  void add_ranks(const Model& model);

  /// A whole plane of a parameter.
  const std::vector<std::byte>& values(const StoredParameter& parameter, const PlaneFormat& plane,
                                       std::uint64_t values = 0);

  struct Rank {
    Catalog catalog;
    ElementLayout layout;
    CommitRecord record;
    std::vector<Superblock> superblocks;  // by drive
  };
  const Rank& rank(std::uint32_t rank) const { return ranks_[rank]; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(ranks_.size()); }
  const WorldOptions& options() const { return options_; }

  std::string container(std::uint32_t rank, std::uint32_t drive) const;
  std::vector<std::string> directories() const;
  /// What find_existing() finds there, read only.
  std::vector<ExistingRank> find() const;

  /// Flips the lowest bit of a byte of a container.
  void flip(std::uint32_t rank, std::uint32_t drive, std::uint64_t offset) const;
  /// Of the first byte of a plane.
  std::uint64_t plane_offset(std::uint32_t rank, std::uint32_t chunk, std::size_t plane) const;

 private:
  std::vector<std::byte> record_bytes(const Rank& rank, std::uint32_t chunk, std::uint64_t values,
                                      CommittedChunk& committed);
  void write_containers(const Rank& rank, const std::vector<std::vector<std::byte>>& records) const;

  std::string directory_;
  WorldOptions options_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::string, std::uint64_t>, std::vector<std::byte>> values_;
};

}  // namespace sluice::store
