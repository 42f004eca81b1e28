#include "engine/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/tile_hash.hpp"
#include "store/checksum.hpp"

namespace sluice::engine {
namespace {

class PlaneHashTask final : public ComputeTask {
 public:
  PlaneHashTask(PlaneView plane, std::function<void(std::uint64_t)> done)
      : plane_(plane), done_(std::move(done)), hashes_(store::tile_count(plane.elements)) {}

  std::uint32_t tiles() const override { return static_cast<std::uint32_t>(hashes_.size()); }
  void run(std::uint32_t tile) override {
    const store::TileExtent extent = store::tile_extent(plane_.elements, tile);
    const auto bytes = [&](std::size_t elements) {
      return (elements + plane_.elements_per_value - 1) / plane_.elements_per_value * plane_.value_bytes;
    };
    hashes_[tile] = kernels::hash_bytes(plane_.data + bytes(extent.first), bytes(extent.count));
  }
  void done() override {
    const std::uint64_t checksum = store::combine_tiles(hashes_);
    const auto done = std::move(done_);
    delete this;
    done(checksum);
  }

 private:
  const PlaneView plane_;
  std::function<void(std::uint64_t)> done_;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace

void hash_plane(Compute& compute, PlaneView plane, std::function<void(std::uint64_t)> done) {
  compute.submit(*new PlaneHashTask(plane, std::move(done)));
}

void hash_planes(const State& state, std::uint32_t chunk, PlaneRange planes, const std::byte* record,
                 std::function<void(const PlaneChecksums&)> done) {
  struct Gathered {
    PlaneChecksums checksums{};
    std::size_t left = 0;
    std::function<void(const PlaneChecksums&)> done;
  };
  const auto gathered = std::make_shared<Gathered>(Gathered{{}, planes.count, std::move(done)});
  const store::ChunkLayout& layout = state.chunk_layout(chunk);
  for (std::size_t plane = planes.first; plane < planes.first + planes.count; ++plane) {
    const store::PlaneFormat& format = state.class_of(chunk).planes[plane];
    const PlaneView view{record + layout.record.plane_offsets[plane], layout.elements,
                         dtype_bytes(format.dtype), format.elements_per_value};
    hash_plane(*state.compute, view, [gathered, plane](std::uint64_t checksum) {
      gathered->checksums[plane] = checksum;
      if (--gathered->left == 0) gathered->done(gathered->checksums);
    });
  }
}

bool equal_planes(PlaneRange planes, const PlaneChecksums& a, const PlaneChecksums& b) {
  const auto first = static_cast<std::ptrdiff_t>(planes.first);
  return std::equal(a.begin() + first, a.begin() + first + static_cast<std::ptrdiff_t>(planes.count),
                    b.begin() + first);
}

Status checksum_mismatch(const State& state, std::uint32_t chunk, const char* what, std::string_view copy) {
  return Status(Code::kDataLoss,
                fmt::format("{} of {}: what the drive returned is not what was written (checksum){}", what,
                            state.describe(chunk), copy));
}

void Records::move(const Movement& movement, Done done) {
  if (free_.empty()) free_.push_back(&ops_.emplace_back());
  Op& op = *free_.back();
  free_.pop_back();
  op.records = this;
  op.chunk = movement.chunk;
  op.what = movement.what;
  op.done = std::move(done);
  op.on_done = &Records::finished;
  op.op = movement.op;
  op.priority = movement.priority;
  op.drive = movement.place.drive;
  op.file = movement.file;
  op.buffer = movement.buffer;
  op.bytes = movement.bytes;
  op.offset = movement.place.offset;
  *movement.counter += movement.bytes;
  state_.loads->begin(op.drive, op.bytes);
  state_.queue->submit(op);
}

void Records::finished(io::Transfer& transfer) {
  Op& op = static_cast<Op&>(transfer);
  Records& records = *op.records;
  State& state = records.state_;
  state.loads->end(op.drive, op.bytes);
  state.counters.io_retries.store(state.queue->counters().retries + state.queue->counters().short_transfers,
                                  std::memory_order_relaxed);
  Status status;
  if (!op.status.ok())
    status = op.status.with_context(fmt::format("{} of {}", op.what, state.describe(op.chunk)));
  const Done done = std::move(op.done);
  records.free_.push_back(&op);
  done(std::move(status));
}

void Records::read(std::uint32_t chunk, PlaneRange planes, std::byte* record, io::Priority priority,
                   Done done) {
  const bool weight = planes.first == 0 && planes.count == 1;
  read_planes({.priority = priority,
               .chunk = chunk,
               .what = weight ? "read weights" : "read state",
               .place = *state_.chunks[chunk].current,
               .counter = weight ? &state_.counters.weight_bytes_read : &state_.counters.record_bytes_read},
              planes, record, std::move(done));
}

void Records::read_from(std::uint32_t chunk, io::Place slot, PlaneRange planes, std::byte* record,
                        Done done) {
  read_planes({.priority = io::Priority::kDemand,
               .chunk = chunk,
               .what = "read a committed copy",
               .place = slot,
               .counter = &state_.counters.record_bytes_read},
              planes, record, std::move(done));
}

void Records::read_planes(Movement movement, PlaneRange planes, std::byte* record, Done done) {
  const store::RecordLayout& layout = state_.chunk_layout(movement.chunk).record;
  const std::size_t last = planes.first + planes.count;
  const std::uint64_t begin = layout.plane_offsets[planes.first];
  const std::uint64_t end = last < layout.plane_offsets.size() ? layout.plane_offsets[last] : layout.bytes;
  movement.op = io::Op::kRead;
  movement.place.offset += begin;
  movement.file = &state_.store->data(movement.place.drive);
  movement.buffer = record + begin;
  movement.bytes = end - begin;
  move(movement, std::move(done));
}

void Records::write(std::uint32_t chunk, io::Place slot, const std::byte* record, Done done) {
  write_record({.chunk = chunk,
                .what = "write state",
                .place = slot,
                .counter = &state_.counters.record_bytes_written},
               record, std::move(done));
}

void Records::save(std::uint32_t chunk, io::Place slot, const std::byte* record, Done done) {
  write_record({.chunk = chunk,
                .what = "write state for a commit",
                .place = slot,
                .counter = &state_.counters.commit_state_bytes_written},
               record, std::move(done));
}

void Records::write_record(Movement movement, const std::byte* record, Done done) {
  movement.op = io::Op::kWrite;
  movement.priority = io::Priority::kBackground;
  movement.file = &state_.store->data(movement.place.drive);
  movement.buffer = const_cast<std::byte*>(record);  // a write only reads it
  movement.bytes = state_.chunk_layout(movement.chunk).record.bytes;
  move(movement, std::move(done));
}

void Records::read_gradient(std::uint32_t chunk, std::byte* plane, io::Priority priority, Done done) {
  move_gradient({.op = io::Op::kRead,
                 .priority = priority,
                 .chunk = chunk,
                 .what = "read gradient",
                 .buffer = plane,
                 .counter = &state_.counters.gradient_bytes_read},
                std::move(done));
}

void Records::write_gradient(std::uint32_t chunk, const std::byte* plane, Done done) {
  move_gradient({.op = io::Op::kWrite,
                 .priority = io::Priority::kBackground,
                 .chunk = chunk,
                 .what = "write gradient",
                 .buffer = const_cast<std::byte*>(plane),  // a write only reads it
                 .counter = &state_.counters.gradient_bytes_written},
                std::move(done));
}

void Records::move_gradient(Movement movement, Done done) {
  movement.place = state_.store->gradient_place(state_.chunks[movement.chunk].spill_slot);
  movement.file = &state_.store->gradients(movement.place.drive);
  movement.bytes = state_.chunk_layout(movement.chunk).gradient_bytes;
  move(movement, std::move(done));
}

}  // namespace sluice::engine
