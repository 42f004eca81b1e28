#include "engine/resident_loader.hpp"

#include <utility>

namespace sluice::engine {
namespace {

/// Enough to keep a drive's queue full while others are hashed.
constexpr std::uint32_t kRecordsAtOnce = 4;

}  // namespace

void ResidentLoader::load(Done done) {
  done_ = std::move(done);
  start_more();
}

void ResidentLoader::start_more() {
  while (status_.ok() && under_way_ < kRecordsAtOnce && next_ < state_.chunks.size()) {
    const std::uint32_t chunk = next_++;
    if (state_.chunks[chunk].resident != nullptr) start(chunk);
  }
  if (under_way_ == 0) std::exchange(done_, nullptr)(status_);
}

void ResidentLoader::start(std::uint32_t chunk) {
  ++under_way_;
  std::byte* const record = state_.chunks[chunk].resident;
  const PlaneRange all{0, state_.class_of(chunk).planes.size()};
  records_.read(chunk, all, record, io::Priority::kDemand, [this, chunk, all, record](Status status) {
    if (!status.ok()) return over(std::move(status));
    hash_planes(state_, chunk, all, record, [this, chunk, all, record](const PlaneChecksums& checksums) {
      if (equal_planes(all, checksums, state_.chunks[chunk].checksums)) return over({});
      commits_.find_copy(chunk, all, record, [this, chunk](const std::string& copy) {
        over(checksum_mismatch(state_, chunk, "state", copy));
      });
    });
  });
}

void ResidentLoader::over(Status status) {
  --under_way_;
  if (status_.ok()) status_ = std::move(status);
  start_more();
}

}  // namespace sluice::engine
