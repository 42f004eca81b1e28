#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/rewrite.hpp"
#include "sluice/engine.hpp"
#include "store/existing.hpp"
#include "store/store.hpp"
#include "store/store_reader.hpp"

namespace sluice::engine {

/// What seal() knows of the stores of earlier runs, until it has gone on from one of them or removed them.
struct Recovery {
  std::optional<store::Drives> drives;  ///< `directories` and `recover_directories`
  std::vector<store::NamesGuard> guards;
  std::vector<store::ExistingRank>
      mine;  ///< locked: the old ranks that this rank answers for, of the chosen store
  std::vector<store::ExistingRank> superseded;  ///< and of one that the chosen store was made from
  std::vector<store::ExistingRank> idle;        ///< and of those that hold no commit
  std::optional<store::Choice> choice;
  std::unique_ptr<store::StoreReader> reader;  ///< of a store that is rewritten; null: in place, or none
  Source source;
  std::vector<std::uint64_t> step_counts;  ///< by tensor
  std::uint64_t steps = 0;
  Recovered report;

  /// Keeps other engines away from the names under the drives. A world of one is alone from the first look to the last
  /// change; ranks that may share directories let each other in between: see Turn.
  Status guard();
};

/// A rank's turn at the names under the drives. No collective is made during it.
class Turn {
 public:
  Turn(Recovery& recovery, std::uint32_t world) : recovery_(recovery), world_(world) {
    if (recovery_.guards.empty()) status_ = recovery_.guard();
  }
  ~Turn() {
    if (world_ > 1) recovery_.guards.clear();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  const Status& status() const { return status_; }

 private:
  Recovery& recovery_;
  const std::uint32_t world_;
  Status status_;
};

/// Lists what the trainer registered otherwise than it was committed: the seed, the numbers of groups.
void compare_settings(const Registry& registry, std::uint64_t seed,
                      const std::vector<store::GroupSettings>& committed, std::uint64_t committed_seed,
                      std::vector<std::string>& differences);

}  // namespace sluice::engine
