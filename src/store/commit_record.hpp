#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/place.hpp"
#include "sluice/optimizer.hpp"
#include "sluice/status.hpp"
#include "store/catalog.hpp"
#include "store/layout.hpp"
#include "store/superblock.hpp"

namespace sluice::store {

/// Of a record; its places are as the superblock's version says. Version 1 has four checksums a chunk always.
inline constexpr std::uint32_t kCommitRecordVersion = 2;

/// A group's name and the numbers of its optimizer at the commit.
struct GroupSettings {
  std::string name;  ///< may be empty
  Optimizer optimizer;
};

/// Where a chunk's record was at the commit and what its planes hash to.
struct CommittedChunk {
  io::Place place;
  std::array<std::uint64_t, kMaxPlanes> checksums{};  ///< by plane of its class; 0 beyond
};

/// One durable version of a rank's state. FORMAT.md has the byte map.
struct CommitRecord {
  /// Of its bytes. One that was read stays of its version, so that writing it again where it lies changes no byte.
  std::uint32_t version = kCommitRecordVersion;
  VolumeId volume_id = {};
  std::uint64_t store_id = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint64_t number = 0;  ///< rises from commit to commit, a failed one leaves a gap; from 1
  std::uint64_t steps = 0;   ///< finished steps of this state
  std::uint64_t seed = 0;
  std::vector<GroupSettings> groups;
  std::vector<std::uint64_t> step_counts;  ///< by parameter of the catalog
  std::vector<CommittedChunk> chunks;      ///< by chunk of the catalog
  std::vector<std::byte> user_bytes;
};

/// What a record's place must hold; see commit_record_bytes().
struct RecordSize {
  std::uint64_t chunks = 0;
  std::uint64_t planes = kMaxPlanes;  ///< checksums a chunk: the planes of the class that has most
  std::uint64_t parameters = 0;
  std::uint64_t groups = 0;
  std::uint64_t group_name_bytes = 0;  ///< of all together
  std::uint64_t user_bytes = 0;
};

/// Of the record as it is: checksums that are 0 for every chunk from one plane on are not counted, but by version 1.
/// Cost: one pass over its chunks.
RecordSize size_of(const CommitRecord& record);

/// The bytes of an encoded record of these sizes, whatever the optimizers; unpadded. 2^64 - 1 if that
/// overflows.
std::uint64_t commit_record_bytes(const RecordSize& size);

/// Writes the record from the front of `target`, in its version: what decode_commit() read comes out to the byte.
/// Returns its bytes.
/// Requires: version is 1 or 2, and no chunk of version 1 has checksums beyond its fourth; target holds commit_record_bytes() of it; its number is not 0, rank < world, no group's name is
/// longer than kNameBytesMax.
/// Cost: three passes over it, one to measure and one to hash.
std::uint64_t encode(const CommitRecord& record, std::span<std::byte> target);

/// A record from the bytes of its place; what follows it there is not looked at.
/// Errors: kNotFound where the place was never written or was erased (its first kErasedBytes are zeros);
/// kDataLoss for a torn or damaged one; kUnimplemented for a whole one of a newer format or with an optimizer
/// that this build does not have, with its number. Nothing is allocated before the checksum of the whole was
/// found right.
Result<CommitRecord> decode_commit(std::span<const std::byte> bytes);

/// Whether a record can be one of this rank's store: its identity, as many step counts, chunks and groups as
/// the catalog has, each chunk on its drive, on the grid, behind slots_offset. Whether a place is a slot is
/// not looked at.
/// Requires: check() accepts the catalog.
/// Errors: kDataLoss, saying what is not.
Status check(const CommitRecord& record, const Superblock& superblock, const Catalog& catalog);

/// The bytes that an erased place begins with: zeros.
inline constexpr std::size_t kErasedBytes = 512;

}  // namespace sluice::store
