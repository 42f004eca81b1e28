#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "sluice/status.hpp"
#include "store/commit_record.hpp"
#include "store/existing.hpp"
#include "store/layout.hpp"
#include "store/plane_reader.hpp"

namespace sluice::store {

/// One rank's part of a stored state: its files, a commit that it holds and the layout that says what lies
/// where.
/// Threads: const, any.
class RankImage {
 public:
  /// Errors: kDataLoss naming the rank for one that lacks a drive or the commit, or whose catalog, layout and
  /// record do not agree with each other.
  static Result<RankImage> open(ExistingRank existing, std::uint64_t commit);

  /// Gives the files back.
  ExistingRank close() && { return std::move(existing_); }

  const Superblock& superblock() const { return *existing_.superblock; }
  const Catalog& catalog() const { return existing_.catalog; }
  const CommitRecord& record() const { return existing_.commits[commit_].record; }
  const ElementLayout& layout() const { return layout_; }

  const ClassLayout& class_of(std::uint32_t chunk) const {
    return layout_.classes()[layout_.chunks()[chunk].class_index];
  }
  /// The elements of the parameter that this rank owns.
  Range shard_of(std::uint32_t parameter) const;
  /// Requires: `plane` is an index in class_of(chunk).planes.
  StoredPlane plane_of(std::uint32_t chunk, std::size_t plane) const;

 private:
  RankImage(ExistingRank existing, std::size_t commit, ElementLayout layout)
      : existing_(std::move(existing)), commit_(commit), layout_(std::move(layout)) {}

  ExistingRank existing_;
  std::size_t commit_;  // in existing_.commits
  ElementLayout layout_;
};

/// "rank 1 of 2 of store 0000000000000abc".
std::string describe_rank(std::uint64_t store_id, std::uint32_t rank, std::uint32_t world);

}  // namespace sluice::store
