#include <cstdint>
#include <utility>
#include <vector>

#include "engine/core.hpp"
#include "engine/initial.hpp"
#include "engine/record_values.hpp"
#include "engine/rewrite.hpp"
#include "kernels/tile_hash.hpp"
#include "store/checksum.hpp"

namespace sluice::engine {
namespace {

enum class Fill : std::uint8_t { kFillAndHash, kFill, kHash };

/// Fills a record's tiles and hashes them while they are in cache, or one of the two.
class FillTask final : public ComputeTask {
 public:
  FillTask(const State& state, const FirstValues& first_values, std::uint32_t chunk, std::byte* record,
           Fill fill)
      : state_(state),
        first_values_(first_values),
        chunk_(chunk),
        record_(record),
        fill_(fill),
        planes_(state.class_of(chunk).planes.size()),
        tiles_(store::tile_count(state.chunk_layout(chunk).elements)),
        hashes_(planes_ * tiles_),
        overflowed_(tiles_),
        failures_(tiles_) {}

  std::uint32_t tiles() const override { return tiles_; }

  void run(std::uint32_t tile) override {
    if (fill_ != Fill::kHash)
      failures_[tile] = fill_tile(state_, first_values_, chunk_, tile, record_, overflowed_[tile]);
    if (fill_ != Fill::kFill) hash(tile);
    if (fill_ == Fill::kHash) count(tile);
  }

  void done() override { is_done = true; }

  Status status() const {
    for (const Status& failure : failures_) SLUICE_RETURN_IF_ERROR(failure);
    return {};
  }
  void store_result(Chunk& chunk) const {
    for (std::size_t plane = 0; plane < planes_; ++plane)
      chunk.checksums[plane] = store::combine_tiles({&hashes_[plane * tiles_], tiles_});
    for (std::uint64_t count : overflowed_) chunk.overflowed += count;
  }

  bool is_done = false;

 private:
  void hash(std::uint32_t tile) {
    const store::ChunkLayout& layout = state_.chunk_layout(chunk_);
    for (std::size_t plane = 0; plane < planes_; ++plane) {
      const store::TileBytes bytes =
          store::tile_bytes(layout.elements, tile, state_.class_of(chunk_).planes[plane]);
      hashes_[plane * tiles_ + tile] =
          kernels::hash_bytes(record_ + layout.record.plane_offsets[plane] + bytes.first, bytes.count);
    }
  }
  void count(std::uint32_t tile) {
    const store::ChunkLayout& layout = state_.chunk_layout(chunk_);
    const store::TileExtent extent = store::tile_extent(layout.elements, tile);
    overflowed_[tile] = count_overflowed(
        {layout, state_.class_of(chunk_), record_, extent.first, extent.count, extent.first + extent.count});
  }

  const State& state_;
  const FirstValues& first_values_;
  const std::uint32_t chunk_;
  std::byte* const record_;
  const Fill fill_;
  const std::size_t planes_;
  const std::uint32_t tiles_;
  std::vector<std::uint64_t> hashes_;  // [plane][tile]
  std::vector<std::uint64_t> overflowed_;
  std::vector<Status> failures_;
};

}  // namespace

Status Core::fill_record(std::uint32_t chunk, std::byte* record) {
  // Callbacks are called on this thread.
  const bool here = has_callback(state_, first_values_, chunk);
  const auto run = [&](FillTask& task) {
    if (here) {
      for (std::uint32_t tile = 0; tile < task.tiles(); ++tile) task.run(tile);
      return task.status();
    }
    state_.compute->submit(task);
    while (!task.is_done) {
      if (ComputeTask* finished = state_.compute->poll())
        finished->done();
      else if (state_.queue->poll() == 0)
        state_.queue->wait();
    }
    return task.status();
  };
  const bool copied = recovery_ && recovery_->reader;
  FillTask fill(state_, first_values_, chunk, record, copied ? Fill::kFill : Fill::kFillAndHash);
  SLUICE_RETURN_IF_ERROR(run(fill));
  if (!copied) {
    fill.store_result(state_.chunks[chunk]);
    return {};
  }
  SLUICE_RETURN_IF_ERROR(copy_chunk(state_, recovery_->source, chunk, record));
  FillTask hash(state_, first_values_, chunk, record, Fill::kHash);
  SLUICE_RETURN_IF_ERROR(run(hash));
  hash.store_result(state_.chunks[chunk]);
  return {};
}

Status Core::fill_records() {
  // The loop does not turn yet: this thread owns the queue, and all frames are free.
  first_values_.seed = state_.seed;
  Status failure;
  for (std::uint32_t chunk = 0; chunk < state_.chunks.size() && failure.ok(); ++chunk) {
    if (state_.chunks[chunk].resident != nullptr) {
      failure = fill_record(chunk, state_.chunks[chunk].resident);
      state_.chunks[chunk].changed = true;
      continue;
    }
    memory::FramePool& frames = state_.stepped(chunk) ? *running_->record_frames : *running_->weight_frames;
    std::byte* frame = frames.try_acquire();
    while (frame == nullptr) {
      if (state_.queue->poll() == 0) state_.queue->wait();
      frame = frames.try_acquire();
    }
    // Writes that fail meanwhile set `failure` too.
    if (Status filled = fill_record(chunk, frame); failure.ok()) failure = std::move(filled);
    const std::optional<io::Place> slot = failure.ok() ? state_.store->acquire_slot(chunk) : std::nullopt;
    if (!slot) {
      frames.release(frame);
      if (failure.ok())
        failure = Status(Code::kInternal, "a new store has no free slot for " + state_.describe(chunk));
      continue;
    }
    state_.chunks[chunk].current = slot;
    running_->records->write(chunk, *slot, frame, [&failure, &frames, frame](Status status) {
      frames.release(frame);
      if (failure.ok() && !status.ok()) failure = std::move(status);
    });
  }
  state_.queue->drain();
  count_overflowed();
  return failure;
}

}  // namespace sluice::engine
