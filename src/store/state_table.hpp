#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sluice/types.hpp"
#include "store/commit_record.hpp"
#include "store/layout.hpp"
#include "store/rank_image.hpp"

namespace sluice::store {

/// A parameter of a stored state, whole over all ranks.
struct ReadableParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
  Policy policy = Policy::kBf16Split;
  std::uint8_t optimizer = 0;  ///< alternative of Optimizer
  DType frozen_dtype = DType::kBF16;
  GradientStorage gradient = GradientStorage::kFp32;
  std::uint32_t group = 0;  ///< index in StateTable::groups
  std::vector<PlaneFormat> planes;
  std::uint64_t step_count = 0;
  std::vector<std::string> aliases;
};

/// Which ranks hold a parameter.
struct Holders {
  /// In the rank's catalog; kNone where it has no such parameter, or one of the same name with another shape
  /// or other planes.
  std::vector<std::uint32_t> index_by_rank;
  /// Whose each shard is. Empty where ranks may hold the same elements differently: groups with communicators
  /// of their own, whose members are not known.
  std::vector<std::uint32_t> rank_by_shard;

  static constexpr std::uint32_t kNone = 0xffffffff;
};

/// What the ranks of a store hold together, by name.
struct StateTable {
  std::vector<GroupSettings> groups;
  std::vector<ReadableParameter> parameters;
  std::vector<Holders> holders;                          ///< by parameter
  std::unordered_map<std::string, std::uint32_t> names;  ///< index in parameters; aliases included
};

/// Parameters stand in the order of rank 0, then those that other ranks alone have; a name that ranks
/// describe differently is as near_rank describes it, if that has it, else as the first that does.
/// Requires: all images of one store, by rank.
StateTable make_state_table(std::span<const RankImage> images, std::uint32_t near_rank);

}  // namespace sluice::store
