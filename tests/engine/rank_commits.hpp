#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/ranks.hpp"

namespace sluice::sim {

/// Several ranks whose stores share a directory and keep commits.
class RankCommitsTest : public RanksTest {
 protected:
  RankCommitsTest() {
    options_.keep_commits = 1;
    options_.max_user_bytes = 100;
  }

  void train(Rank& rank, std::uint64_t salt) {
    Pass pass = rank.begin();
    for (std::size_t at = 0; at < tensors_.size(); ++at) {
      if (tensors_[at].group.policy == Policy::kFrozen) continue;
      // One rank gives the gradient, so that every world sums up to the same.
      const std::vector<float> values = gradient(tensors_[at], salt);
      rank.give(pass, at, rank.rank == 0 ? &values : nullptr);
    }
    rank.step(pass);
  }
  static std::vector<std::byte> user_bytes(std::uint32_t rank, std::uint8_t salt) {
    return {static_cast<std::byte>(rank), static_cast<std::byte>(salt)};
  }
  Whole state(std::uint32_t world) {
    Whole whole = make_whole();
    std::mutex mutex;
    on_ranks(world, [&](Rank& rank) {
      std::lock_guard lock(mutex);
      rank.read_into(whole, tensors_);
    });
    return whole;
  }
};

}  // namespace sluice::sim
