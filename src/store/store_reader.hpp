#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sluice/status.hpp"
#include "sluice/types.hpp"
#include "store/existing.hpp"
#include "store/layout.hpp"
#include "store/plane_reader.hpp"
#include "store/rank_image.hpp"
#include "store/state_table.hpp"

namespace sluice::store {

struct ReaderOptions {
  std::uint64_t store_id = 0;
  std::uint64_t commit = 0;  ///< that every rank holds
  /// Whose part of a parameter is taken first where several ranks hold the same range (groups with
  /// communicators of their own).
  std::uint32_t near_rank = 0;
};

/// A plane that does not hash to what its commit says, or could not be read.
struct BadPlane {
  std::string parameter;  ///< a part of which it holds
  Range range;            ///< elements of that parameter
  Plane plane = Plane::kWeight;
  std::uint32_t rank = 0;
  std::uint32_t chunk = 0;
  std::string drive;  ///< path of the container
  Status status;
};

/// Reads a commit of a store that no engine has open, of any world, by parameter and range. Everything is
/// verified before it is given out: a plane's hashes when it is first touched, a tile's again when it is
/// read.
/// Threads: one at a time. Blocks: on the drives.
/// Memory: kReaderBytes, 8 bytes a tile of the last few planes, and the tables.
class StoreReader {
 public:
  /// Ranks of other stores are left out.
  /// Errors: kDataLoss naming a rank or drive that is missing, does not hold the commit, or holds what does
  /// not agree with itself or with the other ranks; kResourceExhausted without memory for the buffer.
  static Result<std::unique_ptr<StoreReader>> open(std::vector<ExistingRank> ranks,
                                                   const ReaderOptions& options);

  /// Gives the ranks back, by rank, for another commit of theirs to be read without letting go of the locks.
  static std::vector<ExistingRank> close(std::unique_ptr<StoreReader> reader);

  /// Of rank 0.
  const Superblock& superblock() const { return images_[0].superblock(); }
  std::uint64_t commit() const { return images_[0].record().number; }
  std::uint64_t steps() const { return images_[0].record().steps; }
  std::uint64_t seed() const { return images_[0].record().seed; }
  /// Of rank 0, then those that other ranks alone have.
  const std::vector<GroupSettings>& groups() const { return table_.groups; }
  /// Requires: rank < superblock().world.
  const std::vector<std::byte>& user_bytes(std::uint32_t rank) const {
    return images_[rank].record().user_bytes;
  }
  /// In order of registration at rank 0, then those that other ranks alone have.
  const std::vector<ReadableParameter>& parameters() const { return table_.parameters; }
  /// Index in parameters(), by the parameter's name or a name that is tied to it.
  std::optional<std::uint32_t> find(const std::string& name) const;

  /// Whether ranks may hold the parameter's elements differently: groups with communicators of their own.
  bool held_apart(std::uint32_t parameter) const { return table_.holders[parameter].rank_by_shard.empty(); }

  /// The values of elements of one plane, as they are stored.
  /// Shape: target holds the plane's format.bytes(range.count). Requires: the parameter has the plane.
  /// Errors: kDataLoss or kIoError naming parameter, range and plane; kInvalidArgument for a range beyond the
  /// parameter or, of a plane with one value a granule, not from a granule on; kFailedPrecondition for one that ranks may hold differently (groups with communicators of
  /// their own) and that is not all near_rank's.
  Status read(std::uint32_t parameter, Plane plane, Range range, std::byte* target);

  /// Reads every plane of every chunk of every rank once and calls `bad` for each parameter's part of each
  /// plane that is not what was committed, or cannot be read. `progress` hears how many of state_bytes() are
  /// done, last all of them, and may end it with its status. Returns: that status; ok otherwise, whatever was
  /// bad.
  Status verify(const std::function<void(const BadPlane&)>& bad,
                const std::function<Status(std::uint64_t bytes_read)>& progress);

  /// Of all planes of all ranks, unpadded.
  std::uint64_t state_bytes() const;

 private:
  StoreReader(std::vector<RankImage> images, std::uint32_t near_rank, PlaneReader planes);
  /// A part of the rank's shard.
  Status read_part(std::uint32_t rank, std::uint32_t parameter, std::size_t plane, Range range,
                   std::byte* target);
  Status check_near(std::uint32_t parameter, Range range) const;

  std::vector<RankImage> images_;  // by rank
  std::uint32_t near_rank_ = 0;
  StateTable table_;
  PlaneReader planes_;
};

}  // namespace sluice::store
